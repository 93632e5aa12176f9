from __future__ import annotations

from worker.cache.scope import CacheScope
from worker.order.first_come import FirstCome
from worker.request import Sampling, Stopping
from worker.sequence import Sequence, SequenceSpec, pack_tokens


def sequence(number: int) -> Sequence:
    prompt = pack_tokens([number])
    return Sequence(SequenceSpec(number, CacheScope(), prompt, Sampling(), Stopping(1)))


def test_who_was_preempted_stands_where_it_stood() -> None:
    order, sequences = FirstCome(), [sequence(number) for number in range(4)]
    for one in sequences:
        order.add(one, 0)
    for one in sequences[:2]:
        assert order.head() is one
        order.remove(one)
    for one in sequences[:2]:
        order.add(one, 1000)
    assert list(order) == sequences
    assert order.short_head() is None
    assert order.goes_before(sequences[0], sequences[1])
