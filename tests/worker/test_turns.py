"""Turn by turn through the service: the next turn finds the K/V of what was generated."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from tests.worker.chain import VOCAB, DrawingRunner
from tests.worker.desk import Desk, Record, Told, resumed, told
from tests.worker.lab import Lab, Setting, load_member
from tests.worker.loaded import tokenizer_of
from tests.worker.talk import assistant, chat_input, user
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.errors import Cancelled
from worker.intake import Intake
from worker.model.interface import Model
from worker.request import Sampling
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import unpack_tokens
from worker.submission import StopRules, Submission, Usage
from worker.telemetry import RequestCounts
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer
from worker.text.turns import TurnIds, TurnMemory

ASKED = [user("Tell me about bicycles and the number 1234567.")]
WARM = Sampling(temperature=1.0)
# With it the real model writes its answer otherwise than the tokenizer would.
SEED = 2
PROMPT_LEN, ANSWER_LEN = 46, 60
# Of an answer by the model that draws any tokens.
NUM_TOKENS = 16


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def model(smollm2_folder: Path) -> Model:
    return load_member(smollm2_folder, "lowered")


@pytest.fixture(scope="module")
def intake(smollm2_folder: Path, tokenizer: Tokenizer) -> Callable[[int], Intake]:
    template = ChatTemplate.load(smollm2_folder, tokenizer)
    return lambda max_bytes: Intake(
        tokenizer, template, 512, random.Random(0), TurnMemory(max_bytes)
    )


def usage_of(record: Record) -> Usage:
    ((usage,),) = record.ends.values()
    assert isinstance(usage, Usage)
    return usage


@pytest.mark.parametrize(
    ("cache", "max_bytes", "cached"),
    [
        ("radix", 1 << 20, PROMPT_LEN + ANSWER_LEN - 1),
        ("block", 1 << 20, (PROMPT_LEN + ANSWER_LEN - 1) // 16 * 16),
        ("off", 1 << 20, 0),
        ("radix", 0, 82),
        ("block", 0, 80),
    ],
)
def test_turn_two_takes_all_pages_that_turn_one_generated(
    model: Model,
    intake: Callable[[int], Intake],
    tokenizer: Tokenizer,
    *,
    cache: str,
    max_bytes: int,
    cached: int,
) -> None:
    """The last token that was generated has no K/V: nothing was asked behind it."""
    lab = Lab(model, Setting(cache=cache, num_tokens=2048))
    desk = Desk(intake(max_bytes), tokenizer, lab.scheduler, lab.runner)
    first = desk.run(Submission(1, chat_input(ASKED), WARM, SEED, StopRules(max_tokens=ANSWER_LEN)))
    [answer] = told(1, first.outputs)
    assert (usage_of(first).prompt_tokens, len(answer.tokens)) == (PROMPT_LEN, ANSWER_LEN)
    own = tokenizer.encode_inner(answer.text)
    assert own != answer.tokens, "the model wrote as the tokenizer does: another seed is needed"
    chat = [*ASKED, assistant(answer.text), user("And cars?")]
    second = desk.run(Submission(2, chat_input(chat), WARM, SEED, StopRules(max_tokens=2)))
    assert usage_of(second).cached_tokens == cached
    turns = desk.service.tallies.turns
    assert turns == ({TurnIds.RECORDED: 1} if max_bytes else {})


def test_with_the_same_history_an_answer_is_the_same_whatever_the_cache(
    model: Model, intake: Callable[[int], Intake], tokenizer: Tokenizer
) -> None:
    answers = list[list[Told]]()
    for cache in ("radix", "block", "off"):
        lab = Lab(model, Setting(cache=cache, num_tokens=2048))
        desk = Desk(intake(1 << 20), tokenizer, lab.scheduler, lab.runner)
        chat, answers = list(ASKED), [*answers, []]
        for number in (1, 2, 3):
            rules = StopRules(max_tokens=ANSWER_LEN if number == 1 else 12)
            record = desk.run(
                Submission(number, chat_input(chat), WARM, SEED, rules, top_logprobs=1)
            )
            answers[-1] += told(1, record.outputs)
            chat += [assistant(answers[-1][-1].text), user("Go on.")]
        assert desk.service.tallies.turns[TurnIds.RECORDED] == 2
    assert answers[0] == answers[1] == answers[2]


@pytest.fixture
def desk(intake: Callable[[int], Intake], tokenizer: Tokenizer) -> Callable[[], Desk]:
    """Makes a worker whose answers are any tokens."""

    def make() -> Desk:
        cache = RadixCache(PagePool(256, 4, keep_freed=True))
        runner = DrawingRunner(256, 4)
        scheduler = Scheduler(cache, SchedulerLimits(64, 8))
        return Desk(intake(1 << 20), tokenizer, scheduler, runner)

    return make


Asked = Callable[[StopRules, int], Submission]


@pytest.fixture(scope="module")
def asked(tokenizer: Tokenizer) -> Asked:
    """Makes a request whose answer is letters by ones and twos, as no tokenizer writes them."""
    tokens = [tokenizer.token_bytes(number) for number in range(VOCAB)]
    bias = {
        number: -100.0
        for number, token in enumerate(tokens)
        if number in tokenizer.special_ids or len(token) > 2 or not token.isalnum()
    }
    return lambda rules, n: Submission(1, chat_input(ASKED), Sampling(logit_bias=bias), 5, rules, n)


def second_turn(desk: Desk, text: str) -> tuple[list[int], TurnIds | None]:
    chat = [*ASKED, assistant(text), user("And?")]
    prepared = desk.service._entry._intake.prepare(Submission(2, chat_input(chat), seed=0))
    return unpack_tokens(prepared.prompt), prepared.turn


def prompt_ids(desk: Desk) -> list[int]:
    prepared = desk.service._entry._intake.prepare(Submission(2, chat_input(ASKED), seed=0))
    return unpack_tokens(prepared.prompt)


def test_every_choice_is_remembered(desk: Callable[[], Desk], asked: Asked) -> None:
    worker = desk()
    choices = told(3, worker.run(asked(StopRules(max_tokens=NUM_TOKENS), 3)).outputs)
    assert len({one.text for one in choices}) == 3
    for choice in choices:
        ids, turn = second_turn(worker, choice.text)
        assert turn is TurnIds.RECORDED
        assert ids[: PROMPT_LEN + NUM_TOKENS] == prompt_ids(worker) + choice.tokens


def test_an_answer_cut_by_a_stop_string_is_remembered_where_a_token_ends_there(
    desk: Callable[[], Desk], asked: Asked, tokenizer: Tokenizer
) -> None:
    [whole] = told(1, desk().run(asked(StopRules(max_tokens=NUM_TOKENS), 1)).outputs)
    texts = [tokenizer.token_bytes(one).decode() for one in whole.tokens]
    last = max(
        i for i, text in enumerate(texts) if len(text) > 1 and text not in "".join(texts[:i])
    )
    for stop, turn in ((texts[last], TurnIds.RECORDED), (texts[last][1:], TurnIds.MISSED)):
        worker = desk()
        record = worker.run(asked(StopRules(max_tokens=NUM_TOKENS, stop=(stop,)), 1))
        [choice] = told(1, record.outputs)
        assert choice.stop == stop
        ids, found = second_turn(worker, choice.text)
        assert found is turn
        if turn is TurnIds.RECORDED:
            assert ids[: PROMPT_LEN + last] == prompt_ids(worker) + whole.tokens[:last]


def test_an_answer_whose_client_left_is_remembered_as_far_as_it_was_given(
    desk: Callable[[], Desk], asked: Asked
) -> None:
    worker, record = desk(), Record()
    worker.service.connect(record)
    worker.service.submit(record, asked(StopRules(max_tokens=100), 1))
    while len(record.outputs) < 7:
        worker.engine.step()
    worker.service.cancel(record, 1)
    [[end]] = record.ends.values()
    assert isinstance(end, Cancelled)
    [choice] = told(1, record.outputs)
    ids, turn = second_turn(worker, choice.text)
    assert turn is TurnIds.RECORDED
    assert ids[: PROMPT_LEN + 7] == prompt_ids(worker) + choice.tokens


@pytest.mark.parametrize("cut", [1, 4, 15])
def test_an_answer_that_another_worker_began_is_remembered_whole(
    desk: Callable[[], Desk], asked: Asked, cut: int
) -> None:
    submission = asked(StopRules(max_tokens=NUM_TOKENS), 1)
    outputs = desk().run(submission).outputs
    worker = desk()
    again = worker.run(resumed(submission, outputs[:cut]))
    [choice] = told(1, outputs[:cut], again.outputs)
    ids, turn = second_turn(worker, choice.text)
    assert turn is TurnIds.RECORDED
    assert ids[: PROMPT_LEN + NUM_TOKENS] == prompt_ids(worker) + choice.tokens


def test_turns_are_counted_by_whose_ids_they_have(desk: Callable[[], Desk], asked: Asked) -> None:
    worker, registry = desk(), CollectorRegistry()
    registry.register(RequestCounts(worker.service.tallies))
    [choice] = told(1, worker.run(asked(StopRules(max_tokens=NUM_TOKENS), 1)).outputs)
    for text in (choice.text, choice.text, choice.text + "!"):
        chat = chat_input([*ASKED, assistant(text), user("And?")])
        worker.run(Submission(2, chat, rules=StopRules(max_tokens=1)))
    counts = {
        ids: registry.get_sample_value("pando_worker_turns_total", {"ids": ids})
        for ids in ("exact", "recorded", "missed")
    }
    assert counts == {"exact": 0, "recorded": 2, "missed": 1}
