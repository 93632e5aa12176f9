"""A machine that gives no more memory, or threads: requests go elsewhere, and nothing breaks."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from process.threads import started
from tests.worker.chain import ChainRunner
from tests.worker.desk import Desk, Record
from tests.worker.loaded import tokenizer_of
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.engine import Engine
from worker.errors import (
    Exhausted,
    InternalError,
    Overloaded,
    RequestFailed,
    failure_code,
    failure_of,
)
from worker.grammar.masks import Masks
from worker.intake import Intake
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import pack_tokens
from worker.step import StepPlan, StepResult
from worker.submission import ProgramInput, StopRules, Submission
from worker.text.tokenizer import Tokenizer
from worker.timing import Timing
from worker.wire import failed_of

ROOT = Path(__file__).parents[2]


class PanicException(BaseException):
    """As pyo3's, which is no Exception either."""


class ShortRunner(ChainRunner):
    """Raises what it is given, once."""

    error: Exception | None = None

    def run(self, plan: StepPlan, checkpoint: Callable[[], None]) -> StepResult:
        error, self.error = self.error, None
        if error is not None:
            raise error
        return super().run(plan, checkpoint)


class ShortIntake(Intake):
    """Raises what it is given when it prepares."""

    error: BaseException | None = None

    def programs(self) -> Any:
        return PanickingHouse()

    def prepare(self, submission: Submission) -> Any:
        if self.error is not None:
            raise self.error
        return super().prepare(submission)


class PanickingHouse:
    """A house of programs in which nothing can be opened."""

    def opened(self, *_: object) -> None:
        raise PanicException("the thread pool has not been initialized")


class Short(Desk):
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.intake = ShortIntake(tokenizer, None, 100, random.Random(0))
        self.cache = RadixCache(PagePool(64, 4, keep_freed=True))
        self.runner = ShortRunner(64, 4)
        scheduler = Scheduler(self.cache, SchedulerLimits(16, 3))
        super().__init__(self.intake, tokenizer, scheduler, self.runner)


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture
def short(tokenizer: Tokenizer) -> Short:
    return Short(tokenizer)


def submission(num_tokens: int = 3) -> Submission:
    prompt = pack_tokens([5] * num_tokens)
    return Submission(request_id=1, prompt=prompt, rules=StopRules(max_tokens=4))


def end(record: Record) -> RequestFailed:
    [[failure]] = record.ends.values()
    assert isinstance(failure, RequestFailed)
    return failure


NO_MEMORY = [
    MemoryError("no scratch memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("can't start new thread"),
]


@pytest.mark.parametrize("error", NO_MEMORY, ids=lambda error: str(error)[-12:])
def test_a_step_without_memory_sends_its_requests_elsewhere(short: Short, error: Exception) -> None:
    short.runner.error = error
    failure = end(short.run(submission()))
    assert failure_code(failure) == "OVERLOADED"
    assert failed_of(1, failure, Timing(0.1)).exhausted
    assert not failed_of(1, Overloaded(), Timing(0.1)).exhausted
    short.cache.check()
    assert short.cache.pool.num_used == 0


def test_a_step_that_fails_otherwise_is_tried_nowhere_else(short: Short) -> None:
    short.runner.error = RuntimeError("shapes do not match")
    assert type(end(short.run(submission()))) is InternalError


@pytest.mark.parametrize("error", NO_MEMORY, ids=lambda error: str(error)[-12:])
def test_a_request_that_finds_no_memory_to_be_prepared_goes_elsewhere(
    short: Short, error: Exception
) -> None:
    short.intake.error = error
    assert type(end(short.run(submission()))) is Exhausted


def test_a_panic_of_a_library_ends_one_request_and_not_the_link(short: Short) -> None:
    short.intake.error = PanicException("the thread pool has not been initialized")
    assert type(end(short.run(submission()))) is InternalError
    short.intake.error = None
    record = short.run(submission())
    assert [type(ends[0]).__name__ for ends in record.ends.values()] == ["Usage"]


async def test_a_panic_ends_a_program_too(short: Short) -> None:
    record = Record()
    short.service.connect(record)
    short.service.submit(record, replace(submission(), prompt=ProgramInput(b"[]")))
    async with asyncio.timeout(10):
        await short.service.idle()
    assert type(end(record)) is InternalError
    assert short.service.num_live == 0


def test_what_ends_a_task_is_no_failure_of_a_request() -> None:
    for error in (asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1)):
        with pytest.raises(type(error)):
            failure_of(error)


_NO_ROOM = """
import asyncio, resource, sys
from pathlib import Path
from worker.text.tokenizer import Tokenizer
from worker.wire import failed_of
from process.threads import started

tokenizer = Tokenizer.load(Path(sys.argv[1]))

async def encode():
    asyncio.get_running_loop().set_default_executor(started(8))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    now = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), now[1]))
    both = await asyncio.gather(
        *(asyncio.to_thread(tokenizer.encode, "Trees have roots.") for _ in range(8))
    )
    resource.setrlimit(resource.RLIMIT_AS, now)
    return both

print(sum(map(len, asyncio.run(encode()))))
"""


def test_texts_are_read_without_starting_any_thread(smollm2_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _NO_ROOM, str(smollm2_folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 2


def test_a_pool_that_was_started_has_all_its_threads() -> None:
    before = set(threading.enumerate())  # other tests' servers may not be quite gone
    with started(3) as pool:
        own = set(threading.enumerate())
        assert len([one for one in own - before if one.name.startswith("aside")]) == 3
        together = threading.Barrier(3)
        assert sorted(pool.map(lambda _: together.wait(10), range(3))) == [0, 1, 2]
        assert not {one for one in threading.enumerate() if one.name.startswith("aside")} - own


def test_an_engine_starts_the_threads_of_masks_with_its_own() -> None:
    masks = Masks(2)
    cache = RadixCache(PagePool(64, 4, keep_freed=True))
    scheduler = Scheduler(cache, SchedulerLimits(16, 3), masks=masks)
    engine = Engine(scheduler, ShortRunner(64, 4), lambda _: None)
    before = names("masks")
    engine.start(lambda: None)
    assert names("masks") == before + 2
    engine.stop()
    assert names("masks") == before


def names(name: str) -> int:
    return sum(one.name == name for one in threading.enumerate())
