"""Masks are computed beside the engine's thread: nobody is blocked, starved, or left behind."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.worker.grammar.languages import SCHEMAS, json_schema
from tests.worker.grammar.weak import Bench, Weak, asked, choices, regex, seeded
from tests.worker.loaded import tokenizer_of
from worker.errors import InternalError
from worker.grammar.compiler import Compiler
from worker.grammar.masks import Masks
from worker.grammar.matcher import Matcher
from worker.grammar.outlook import Outlook, closed, is_open, opened, single
from worker.text.tokenizer import Tokenizer


class HeldMasks(Masks):
    """Answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, tuple[Matcher, Sequence[int]]] = {}

    def ask(self, number: int, matcher: Matcher, tokens: Sequence[int]) -> None:
        self._asked.add(number)
        self.held[number] = (matcher, tokens)

    def wait(self, seconds: float) -> None:
        pass

    def release(self, *numbers: int) -> None:
        for number in numbers:
            self._answer(number, *self.held.pop(number))


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Compiler:
    return Compiler(tokenizer)


@pytest.fixture
def held() -> HeldMasks:
    return HeldMasks()


@pytest.fixture
def weak(tokenizer: Tokenizer, grammars: Compiler, held: HeldMasks) -> Weak:
    return Weak(tokenizer, None, grammars, held)


def test_whose_mask_is_not_ready_sits_out_and_others_go_on(weak: Weak, held: HeldMasks) -> None:
    [late], [mate] = weak.submit(asked(regex("[a-z]{9,}"))), weak.submit(asked(None, max_tokens=9))
    weak.engine.step()  # the mate's prompt: nobody waits for the other's first mask
    held.release(late)
    for _ in range(5):
        weak.engine.step()
    assert len(weak.told[late].tokens) == 1
    assert len(weak.told[mate].tokens) == 6
    assert weak.scheduler.counters.sat_out == 4
    held.release(late)
    weak.engine.step()
    assert len(weak.told[late].tokens) == 2
    assert len(weak.told[mate].tokens) == 7
    weak.engine.abort([late, mate])
    weak.finish()


def test_where_everyone_waits_for_masks_there_is_nothing_to_do(weak: Weak, held: HeldMasks) -> None:
    numbers = [weak.submit(seeded(asked(regex("[a-z]{3}")), seed))[0] for seed in range(3)]
    assert weak.engine.step()  # takes the commands
    assert not weak.engine.step()
    assert weak.scheduler.num_waiting == 3
    assert weak.engine.load.uncomputed_tokens == 15
    held.release(*numbers)
    while any(weak.told[number].finish is None for number in numbers):
        weak.engine.step()
        held.release(*held.held)
    weak.finish()


def test_an_abort_while_a_mask_is_computed_drops_it(weak: Weak, held: HeldMasks) -> None:
    [waiting], [running] = weak.submit(asked(regex("[a-z]+"))), weak.submit(asked(regex("[a-z]+")))
    weak.engine.step()
    held.release(running)
    weak.engine.step()
    weak.engine.abort([waiting, running])
    weak.engine.step()
    assert weak.cache.pool.num_used == 0
    held.release(waiting, running)
    weak.engine.step()
    assert not held.take()
    assert not held._asked
    weak.settled()


def test_the_prefill_of_another_does_not_wait(weak: Weak, held: HeldMasks) -> None:
    weak.submit(asked(regex("[a-z]+")))
    [free] = weak.submit(asked(None, max_tokens=2))
    weak.engine.step()
    assert len(weak.told[free].tokens) == 1
    weak.engine.abort(list(weak.told))
    weak.finish()


def test_a_preempted_sequence_keeps_its_mask_or_waits_for_it(
    tokenizer: Tokenizer, grammars: Compiler
) -> None:
    requests = [asked(json_schema(SCHEMAS["flat"]), [seed + 5] * 9, 40) for seed in range(5)]
    wanted = Weak(tokenizer, None, grammars).run(*requests)
    held = HeldMasks()
    weak = Weak(tokenizer, Bench(num_pages=20), grammars, held)
    numbers = [number for one in requests for number in weak.submit(one)]
    turn = 0
    while any(weak.told[number].finish is None for number in numbers):
        weak.engine.step()
        turn += 1
        held.release(*sorted(held.held)[turn % 2 :: 2])  # every other one is late
    assert [weak.told[number].tokens for number in numbers] == [one.tokens for one in wanted]
    assert weak.scheduler.counters.preemptions > 0
    assert weak.scheduler.counters.sat_out > 0
    weak.finish()


def test_threads_give_the_same_answers_and_wake_the_engine(
    tokenizer: Tokenizer, grammars: Compiler
) -> None:
    requests = [
        *(seeded(asked(json_schema(SCHEMAS["nested"])), seed) for seed in range(6)),
        asked(choices("one long text that is forced")),
        asked(None, max_tokens=20),
    ]
    wanted = Weak(tokenizer, None, grammars).run(*requests)
    masks = Masks(2)
    weak = Weak(tokenizer, None, grammars, masks)
    numbers = [number for one in requests for number in weak.submit(one)]
    done = threading.Event()
    on_report = weak.engine._on_report

    def take(report: object) -> None:
        on_report(report)  # type: ignore[arg-type]
        if all(weak.told[number].finish is not None for number in numbers):
            done.set()

    weak.engine._on_report = take
    weak.engine.start(done.set)
    assert done.wait(60)
    weak.engine.stop()
    assert [weak.told[number].tokens for number in numbers] == [one.tokens for one in wanted]
    weak.settled()
    assert not masks._threads


class BrokenMatcher(Matcher):
    def advance(self, tokens: Sequence[int]) -> Outlook:
        raise RuntimeError("planted")


def test_a_defect_in_a_matcher_ends_its_request_with_nothing_of_the_inside(
    tokenizer: Tokenizer, grammars: Compiler, caplog: pytest.LogCaptureFixture
) -> None:
    masks = Masks()
    masks.ask(1, BrokenMatcher(grammars.compile(regex("a")), appends=True), [])
    [(number, outlook)] = masks.take()
    assert number == 1
    assert isinstance(outlook.failure, InternalError)
    assert "mask failed" in caplog.text


def test_masks_are_bits_from_the_lowest_up() -> None:
    mask = single(10, 3)
    assert mask == b"\x00\x04\x00"
    assert opened(mask, [0, 23, 99]) == b"\x01\x04\x80"
    assert closed(opened(mask, [0]), [10, 99]) == b"\x01\x00\x00"
    assert not is_open(closed(mask, [10]))
