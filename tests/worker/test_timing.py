"""What a request's time went to: exact on a clock that only the work moves, told over the link."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from proto import worker_pb2 as pb
from tests.worker.chain import ChainRunner
from tests.worker.desk import Desk, Record
from tests.worker.door import Client, Worker
from worker import wire
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.intake import Intake
from worker.prepared import Prepared
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import pack_tokens
from worker.step import StepPlan, StepResult
from worker.submission import Resumed, StopRules, Submission, Usage, Want
from worker.text.tokenizer import Tokenizer
from worker.timing import Timer, Timing

PREPARE_S, STEP_S = 0.25, 1.0
PROMPT = [5, 6, 7, 8, 9]


@dataclass
class Hand:
    """A clock that stands still until somebody works."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class SlowIntake(Intake):
    hand: Hand

    def prepare(self, submission: Submission) -> Prepared:
        self.hand.now += PREPARE_S
        return super().prepare(submission)


class SlowRunner(ChainRunner):
    hand: Hand

    def run(self, plan: StepPlan, checkpoint: Callable[[], None]) -> StepResult:
        self.hand.now += STEP_S
        return super().run(plan, checkpoint)


class Slow(Desk):
    """Preparing takes PREPARE_S and a step STEP_S of at most 4 tokens, one sequence at a time."""

    def __init__(self, tokenizer: Tokenizer, pages: int = 64, at_once: int = 1) -> None:
        hand = Hand()
        intake = SlowIntake(tokenizer, None, 100, random.Random(0))
        runner = SlowRunner(64, 4)
        intake.hand = runner.hand = hand
        cache = RadixCache(PagePool(pages, 4))
        scheduler = Scheduler(cache, SchedulerLimits(4 * at_once, at_once))
        super().__init__(intake, tokenizer, scheduler, runner, hand)
        self.runner = runner
        self.record = Record()
        self.service.connect(self.record)

    def submit(self, number: int, **fields: Any) -> None:
        asked: dict[str, Any] = {"prompt": pack_tokens(PROMPT), "rules": StopRules(max_tokens=3)}
        self.service.submit(self.record, Submission(number, **{**asked, **fields}))

    def work(self) -> None:
        while self.engine.step():
            pass


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return Tokenizer.load(smollm2_folder)


@pytest.fixture
def slow(tokenizer: Tokenizer) -> Slow:
    return Slow(tokenizer)


def test_each_phase_has_what_it_took(slow: Slow) -> None:
    slow.submit(1)
    slow.work()
    # Five tokens are two steps of a prefill; two more tokens are two steps.
    assert slow.record.timings[1] == Timing(4.25, 0.25, 0.25, 2.25)


def test_who_waits_for_its_turn_is_told_so(slow: Slow) -> None:
    slow.submit(1)
    slow.submit(2, prompt=pack_tokens([50, 60, 70]))
    slow.work()
    # The shorter one goes first; the other waits for its three steps.
    assert slow.record.timings[2] == Timing(3.25, 0.25, 0.25, 1.25)
    assert slow.record.timings[1] == Timing(7.5, 0.25, 3.5, 5.5)


def test_of_several_choices_what_comes_first_counts(slow: Slow) -> None:
    slow.submit(1, n=2)
    slow.work()
    told = slow.record.timings[1]
    assert (told.prepared_s, told.admitted_s, told.first_token_s) == (0.25, 0.25, 2.25)
    assert told.ended_s > 6


def test_what_is_handed_back_says_how_far_it_came(slow: Slow) -> None:
    slow.submit(1)
    slow.submit(2)
    slow.engine.step()
    slow.service.leave()
    assert slow.record.timings[2] == Timing(1.25, 0.25)
    slow.service.hand_back()
    assert slow.record.timings[1] == Timing(1.5, 0.25, 0.5)
    slow.submit(3)
    assert slow.record.timings[3] == Timing(0.0)


def test_a_step_that_fails_was_begun(slow: Slow) -> None:
    slow.submit(1)
    slow.runner.fail_next = True
    slow.engine.step()
    assert slow.record.timings[1] == Timing(1.25, 0.25, 0.25)


def test_who_gives_pages_back_is_told_how_often(tokenizer: Tokenizer) -> None:
    slow = Slow(tokenizer, pages=5, at_once=2)
    for number in (1, 2):
        prompt = pack_tokens([number * 10 + place for place in range(6)])
        slow.submit(number, prompt=prompt, rules=StopRules(max_tokens=8, ignore_eos=True))
    slow.work()
    often = [slow.record.timings[number].num_preemptions for number in (1, 2)]
    assert often == [0, slow.engine.load.counters.preemptions]
    assert often[1] > 0
    done = wire.done_of(2, Usage(5, 4, 3), slow.record.timings[2])
    assert done.timing.num_preemptions == often[1]


def test_where_nothing_is_computed_all_of_it_was_preparing(slow: Slow) -> None:
    slow.submit(1, want=Want.TOKENS)
    slow.submit(2, resume=(Resumed(0, pack_tokens([5, 6, 7]), 0, True),))
    slow.submit(3, prompt=b"")
    assert slow.record.timings == {
        1: Timing(0.25),
        2: Timing(0.25),
        3: Timing(0.25),
    }


def test_the_first_mark_stays() -> None:
    timer = Timer(10.0)
    for now in (11.0, 12.0):
        timer.prepared(now)
        timer.admitted(now + 0.25)
        timer.token(now + 0.5)
    assert timer.read(13.0) == Timing(3.0, 1.0, 1.25, 1.5)


def test_zero_is_told_and_what_did_not_happen_is_not() -> None:
    done = wire.done_of(1, Usage(5, 4, 3), Timing(0.000_002_5, 0.0))
    assert done.timing.HasField("prepared_us")
    assert not done.timing.HasField("admitted_us")
    assert (done.timing.prepared_us, done.timing.ended_us) == (0, 2)


@pytest.fixture
async def worker(smollm2_folder: Path) -> AsyncIterator[Worker]:
    worker = Worker(smollm2_folder)
    await worker.server.start()
    worker.engine.start(lambda: None)
    yield worker
    await worker.server.stop(None)
    await asyncio.to_thread(worker.engine.stop)


async def test_both_ends_carry_it_over_the_link(worker: Worker) -> None:
    worker.runner.on_layer = lambda: time.sleep(0.005)  # so that the second outlives its cancel
    client = Client(worker.port)
    await client.greet()
    await client.submit(1, PROMPT)
    await client.submit(2, PROMPT, stopping=pb.Stopping(max_tokens=500, ignore_eos=True))
    async with asyncio.timeout(30):
        while 1 not in client.ends or (2, 0) not in client.tokens:
            await client.take()
        await client.cancel(2)
        while 2 not in client.ends:
            await client.take()
    [[done], [failed]] = client.ends[1], client.ends[2]
    assert isinstance(done, pb.Done)
    assert isinstance(failed, pb.Failed)
    for timing in (done.timing, failed.timing):
        marks = [timing.prepared_us, timing.admitted_us, timing.first_token_us, timing.ended_us]
        assert marks == sorted(marks)
        assert marks[0] > 0
        assert marks[2] > marks[1]
    await client.call.done_writing()
    await client.channel.close(None)


def test_a_gateway_of_the_version_before_reads_what_it_knows() -> None:
    """The contract without Timing, as an older gateway has it, reads a new worker's step."""
    older = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(older)
    for message in older.message_type:
        if message.name in ("Done", "Failed"):
            kept = [field for field in message.field if field.name != "timing"]
            del message.field[:]
            message.field.extend(kept)
    left = [message for message in older.message_type if message.name != "Timing"]
    del older.message_type[:]
    older.message_type.extend(left)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(older)
    found = pool.FindMessageTypeByName("pando.worker.v1.Step")
    step = message_factory.GetMessageClass(found)()
    told = pb.Step(sequence=7, done=[wire.done_of(3, Usage(5, 4, 3), Timing(1.0, 0.5))])
    step.ParseFromString(told.SerializeToString())
    read: Any = step
    assert (read.sequence, read.done[0].request_id, read.done[0].usage.cached_tokens) == (7, 3, 4)
    assert not hasattr(read.done[0], "timing")
