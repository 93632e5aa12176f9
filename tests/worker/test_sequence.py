from __future__ import annotations

from worker.cache.scope import CacheScope
from worker.request import FinishReason, Sampling, Stopping
from worker.sequence import Sequence, SequenceSpec, pack_tokens

END = frozenset({2})


def sequence(sampling: Sampling, output: list[int]) -> Sequence:
    """Two tokens must come before one that ends it."""
    prompt, stopping = pack_tokens([7, 8, 9]), Stopping(4, END, min_tokens=2)
    spec = SequenceSpec(
        1, CacheScope(), prompt, sampling, stopping, choice=3, output=pack_tokens(output)
    )
    return Sequence(spec)


def test_what_would_end_it_may_not_be_sampled_before_min_tokens() -> None:
    one = sequence(Sampling(), [])
    banned = []
    for token in (5, 6, 2):
        banned.append(one.sample_row().banned)
        ended = one.append(token)
    assert banned == [END, END, frozenset()]
    assert ended is FinishReason.STOP


def test_what_another_worker_generated_is_output_in_every_respect() -> None:
    one = sequence(Sampling(presence_penalty=1.0), [5, 6])
    row = one.sample_row()
    assert (row.position, row.choice, row.prompt_len, row.banned) == (5, 3, 3, frozenset())
    assert row.history == pack_tokens([7, 8, 9, 5, 6])
    assert (one.remaining, one.output_len) == (5, 2)
    assert one.append(2) is FinishReason.STOP


def test_a_token_of_another_worker_ends_nothing_before_min_tokens() -> None:
    stopping = Stopping(4, END, min_tokens=2)
    assert [stopping.ends(2, count) for count in (1, 2, 3)] == [None, None, FinishReason.STOP]


def test_history_travels_only_where_a_penalty_needs_it() -> None:
    assert sequence(Sampling(), [5]).sample_row().history == b""


def test_it_ends_with_its_last_token_at_the_latest() -> None:
    one = sequence(Sampling(), [5, 6])
    assert one.append(5) is None
    assert one.append(5) is FinishReason.LENGTH
