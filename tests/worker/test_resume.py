"""A request that another worker began goes on as if nobody had left."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.chain import VOCAB, DrawingRunner
from tests.worker.desk import Desk, resumed, told
from tests.worker.lab import Lab, Setting, load_member
from tests.worker.loaded import tokenizer_of
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.errors import ContextLengthExceeded, InvalidRequest, RequestFailed
from worker.intake import Intake
from worker.request import FinishReason, Sampling
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import pack_tokens
from worker.submission import ChatInput, Output, Resumed, StopRules, Submission, Usage
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer

MAX_LEN = 256
CHAT = ChatInput(json.dumps([{"role": "user", "content": "Name a tree."}]).encode())
SAMPLED = Sampling(
    temperature=1.1, top_p=0.95, presence_penalty=0.7, frequency_penalty=0.3, repetition_penalty=1.2
)
SAMPLINGS = [
    Sampling(temperature=0),
    Sampling(temperature=0, frequency_penalty=5, repetition_penalty=1.5),
    SAMPLED,
]


Ends = dict[int, list[Usage | RequestFailed]]


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def intake(smollm2_folder: Path, tokenizer: Tokenizer) -> Intake:
    template = ChatTemplate.load(smollm2_folder, tokenizer)
    return Intake(tokenizer, template, MAX_LEN, random.Random(0))


@pytest.fixture(scope="module")
def desk(intake: Intake, tokenizer: Tokenizer) -> Callable[[], Desk]:
    """Makes a worker with an empty cache."""

    def make() -> Desk:
        cache = RadixCache(PagePool(256, 4, keep_freed=True))
        scheduler = Scheduler(cache, SchedulerLimits(64, 8))
        return Desk(intake, tokenizer, scheduler, DrawingRunner(256, 4))

    return make


def usage_of(ends: Ends) -> tuple[int, int]:
    ((usage,),) = ends.values()
    assert isinstance(usage, Usage), usage
    assert usage.cached_tokens <= usage.prompt_tokens
    return usage.prompt_tokens, usage.completion_tokens


def refusal(desk: Callable[[], Desk], submission: Submission) -> object:
    ((error,),) = desk().run(submission).ends.values()
    return error


stops = st.lists(st.sampled_from(["e", "th", "ion", "\n", " a", "\ufffd", "r e"]), max_size=2)
requests = st.builds(
    Submission,
    request_id=st.just(1),
    prompt=st.sampled_from([CHAT, "Once upon", pack_tokens([5, 6, 7])]),
    sampling=st.sampled_from(SAMPLINGS),
    seed=st.integers(0, 2**63),
    rules=st.builds(
        StopRules,
        max_tokens=st.integers(1, 10),
        stop=stops.map(tuple),
        # A third of the ids, so that many choices end by one.
        stop_token_ids=st.sampled_from([(), tuple(range(0, VOCAB, 3))]),
        min_tokens=st.sampled_from([0, 0, 1, 4]),
        include_stop=st.booleans(),
    ).filter(lambda rules: rules.min_tokens <= (rules.max_tokens or 0)),
    n=st.sampled_from([1, 1, 3]),
    top_logprobs=st.sampled_from([None, 0, 2]),
)


def unseen(outputs: list[Output]) -> list[Output]:
    """What a gateway has that was told everything but that choices ended."""
    return [replace(one, finish=None, stop=None) for one in outputs]


@settings(max_examples=150)
@given(submission=requests, chance=st.randoms(use_true_random=False))
def test_a_request_cut_anywhere_goes_on_as_if_it_had_not_been(
    desk: Callable[[], Desk], submission: Submission, chance: random.Random
) -> None:
    whole = desk().run(submission)
    wanted = told(submission.n, whole.outputs)
    assert all(one.finish for one in wanted)

    def go_on(*parts: list[Output]) -> list[Output]:
        record = desk().run(resumed(submission, *parts))
        assert told(submission.n, *parts, record.outputs) == wanted
        assert usage_of(record.ends) == usage_of(whole.ends)
        return record.outputs

    for cut in range(len(whole.outputs) + 1):
        first = whole.outputs[:cut]
        second = go_on(first)
        go_on(first, second[: chance.randint(0, len(second))])
        go_on(unseen(first))


def test_what_another_worker_generated_is_taken_from_the_cache_and_counts_as_no_prompt(
    desk: Callable[[], Desk],
) -> None:
    worker = desk()
    submission = Submission(1, pack_tokens(list(range(20))), SAMPLED, 7, StopRules(max_tokens=20))
    whole = worker.run(submission)
    before = worker.engine.load.counters
    again = worker.run(resumed(submission, whole.outputs[:15]))
    ((usage,),) = again.ends.values()
    assert usage == Usage(20, 20, 20)
    counters = worker.engine.load.counters
    assert counters.prompt_tokens - before.prompt_tokens == 20
    assert counters.cached_tokens - before.cached_tokens == 20
    assert counters.generated_tokens - before.generated_tokens == 5


def test_a_request_without_anything_left_to_compute_is_done_at_once(
    desk: Callable[[], Desk],
) -> None:
    resume = (Resumed(1, pack_tokens([9]), 0, True), Resumed(0, pack_tokens([8, 7]), 1, True))
    worker = desk()
    record = worker.run(Submission(1, "Once", n=2, resume=resume))
    assert not record.outputs
    ((usage,),) = record.ends.values()
    assert usage == Usage(1, 0, 3)
    assert worker.engine.load.counters.steps == 0


def test_a_choice_that_is_not_named_starts_afresh(desk: Callable[[], Desk]) -> None:
    submission = Submission(1, "Once", SAMPLED, 5, StopRules(max_tokens=6), n=2)
    wanted = told(2, desk().run(submission).outputs)
    begun = Resumed(1, pack_tokens(wanted[1].tokens[:3]))
    got = told(2, desk().run(replace(submission, resume=(begun,))).outputs)
    assert got[0] == wanted[0]
    # Nothing of its text had been given out.
    assert (got[1].tokens, got[1].text) == (wanted[1].tokens[3:], wanted[1].text)


@pytest.mark.parametrize(
    ("resume", "says"),
    [
        ((Resumed(2, b""),), "resume names choice 2; n is 2."),
        ((Resumed(1, b""), Resumed(1, b"")), "resume names choice 1 twice."),
        ((Resumed(0, b"\x01\x00"),), "resume holds a broken token id."),
        (
            (Resumed(0, pack_tokens([1, 10**6]), 0, True),),
            "resume holds token id 1000000; this model has ids from 0 to 49151.",
        ),
        (
            (Resumed(0, pack_tokens([-1])),),
            "resume holds token id -1; this model has ids from 0 to 49151.",
        ),
        (
            (Resumed(1, pack_tokens([28120]), 999),),
            "resume has 999 characters for choice 1; its tokens make 5.",
        ),
    ],
)
def test_what_cannot_have_been_given_out_is_refused_by_name(
    desk: Callable[[], Desk], resume: tuple[Resumed, ...], says: str
) -> None:
    error = refusal(desk, Submission(1, "Once", n=2, resume=resume))
    assert isinstance(error, InvalidRequest)
    assert (error.param, error.message) == ("resume", says)


@pytest.mark.parametrize("more", [0, 1, 40])
def test_an_answer_that_fills_the_window_ends_there_and_counts_all_that_was_given_out(
    desk: Callable[[], Desk], more: int
) -> None:
    """The other worker's window may have been the larger one."""
    begun = Resumed(0, pack_tokens([400] * (MAX_LEN - 3 + more)))
    record = desk().run(Submission(1, pack_tokens([5, 6, 7]), resume=(begun,)))
    ((usage,),) = record.ends.values()
    assert usage == Usage(3, 0, MAX_LEN - 3 + more)
    (output,) = record.outputs
    assert (output.tokens, output.finish) == ([], FinishReason.LENGTH)
    assert output.text


def test_a_continuation_may_ask_for_no_more_than_the_window_holds(
    desk: Callable[[], Desk],
) -> None:
    begun = Resumed(0, pack_tokens([400] * 9))
    rules = StopRules(max_tokens=MAX_LEN)
    error = refusal(desk, Submission(1, "Once", rules=rules, resume=(begun,)))
    assert isinstance(error, ContextLengthExceeded)


def test_the_last_free_token_of_the_window_is_still_computed(desk: Callable[[], Desk]) -> None:
    rules = StopRules(ignore_eos=True)
    begun = Resumed(0, pack_tokens([400] * (MAX_LEN - 4)))
    record = desk().run(Submission(1, pack_tokens([5, 6, 7]), rules=rules, resume=(begun,)))
    (output,) = record.outputs
    assert (len(output.tokens), output.finish) == (1, FinishReason.LENGTH)


@pytest.mark.parametrize(
    "submission",
    [
        Submission(1, CHAT, Sampling(temperature=0), 0, StopRules(max_tokens=12), top_logprobs=2),
        Submission(1, "A haiku about trees:", SAMPLED, 3, StopRules(max_tokens=12), n=3),
    ],
    ids=["greedy", "sampled"],
)
def test_the_real_model_goes_on_bit_for_bit(
    smollm2_folder: Path, intake: Intake, tokenizer: Tokenizer, submission: Submission
) -> None:
    model = load_member(smollm2_folder, "lowered")

    def desk() -> Desk:
        lab = Lab(model, Setting(page_size=4, num_tokens=1024))
        return Desk(intake, tokenizer, lab.scheduler, lab.runner)

    whole = desk().run(submission)
    wanted = told(submission.n, whole.outputs)
    for cut in range(0, len(whole.outputs) + 1, submission.n):
        second = desk().run(resumed(submission, whole.outputs[:cut]))
        assert told(submission.n, whole.outputs[:cut], second.outputs) == wanted
        assert usage_of(second.ends) == usage_of(whole.ends)
