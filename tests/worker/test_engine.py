from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.worker.chain import ChainRunner, expected
from worker.cache.boundaries import EventKind
from worker.cache.interface import Match
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import CacheScope
from worker.engine import Engine, StepAbandoned, StepReport
from worker.request import Sampling, Stopping
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import BoundaryPosition, SequenceSpec, pack_tokens
from worker.step import StepPlan, StepResult
from worker.stopwatch import Durations


class GatedRunner(ChainRunner):
    """Stops inside a step until the test says go."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        super().__init__(num_pages, page_size)
        self.inside = threading.Event()
        self.go = threading.Event()
        self.go.set()
        self.abandoned = 0

    def run(self, plan: StepPlan, checkpoint: Callable[[], None]) -> StepResult:
        def gate() -> None:
            self.inside.set()
            assert self.go.wait(10)
            checkpoint()

        try:
            return super().run(plan, gate)
        except StepAbandoned:
            self.abandoned += 1
            raise


class BrokenCache(RadixCache):
    def match(self, scope: CacheScope, tokens: bytes) -> Match:
        raise AssertionError("planted")


class Lab:
    def __init__(self, make_cache: Callable[[PagePool], RadixCache] = RadixCache) -> None:
        self.pool = PagePool(64, 4, keep_freed=True)
        self.cache = make_cache(self.pool)
        self.runner = GatedRunner(64, 4)
        self.reports: queue.Queue[StepReport] = queue.Queue()
        scheduler = Scheduler(self.cache, SchedulerLimits(32, 8))
        self.engine = Engine(scheduler, self.runner, self.reports.put)
        self.numbers = iter(range(1, 1000))

    def submit(
        self,
        prompt: list[int],
        max_tokens: int = 4,
        boundaries: tuple[BoundaryPosition, ...] = (),
    ) -> int:
        number = next(self.numbers)
        self.engine.submit(
            [
                SequenceSpec(
                    number,
                    CacheScope(),
                    pack_tokens(prompt),
                    Sampling(),
                    Stopping(max_tokens),
                    boundaries=boundaries,
                )
            ]
        )
        return number

    def outputs(self, number: int) -> list[int]:
        tokens: list[int] = []
        while True:
            report = self.reports.get(timeout=10)
            for progress in report.progress:
                if progress.sequence_id == number:
                    tokens += progress.tokens
                    if progress.finish is not None:
                        return tokens

    def hold_inside(self) -> None:
        self.runner.inside.clear()
        self.runner.go.clear()

    def load_after(self, seen: Callable[[StepReport], bool]) -> StepReport:
        while True:
            report = self.reports.get(timeout=10)
            if seen(report):
                return report


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    lab.engine.start(lambda: None)
    yield lab
    lab.runner.go.set()
    lab.engine.stop()
    assert not lab.engine.alive
    lab.cache.check()


def test_a_submitted_sequence_comes_back_token_by_token(lab: Lab) -> None:
    assert lab.outputs(lab.submit([1, 2, 3])) == expected([1, 2, 3], 4)


def test_an_abort_during_the_only_sequences_step_gives_the_step_up(lab: Lab) -> None:
    lab.hold_inside()
    number = lab.submit(list(range(20)))
    assert lab.runner.inside.wait(10)
    lab.engine.abort([number])
    lab.runner.go.set()
    report = lab.load_after(lambda report: report.load.used_pages == 0)
    assert lab.runner.abandoned == 1
    assert not report.progress
    # Nothing of the step that was given up can be matched.
    assert report.load.cached_pages == 0
    assert lab.outputs(lab.submit(list(range(20)))) == expected(list(range(20)), 4)


def test_an_abort_during_a_shared_step_frees_its_pages_and_leaves_the_mate_alone(lab: Lab) -> None:
    lab.hold_inside()
    mate, number = lab.submit([5, 6, 7]), lab.submit(list(range(20)))
    assert lab.runner.inside.wait(10)
    lab.engine.abort([number])
    lab.runner.go.set()
    assert lab.outputs(mate) == expected([5, 6, 7], 4)
    assert lab.runner.abandoned == 0
    assert lab.engine.load.used_pages == 0


def test_an_abort_in_the_queue_leaves_no_trace(lab: Lab) -> None:
    lab.hold_inside()
    running = lab.submit([1])
    assert lab.runner.inside.wait(10)
    waiting = lab.submit(list(range(9)))
    lab.engine.abort([waiting])
    lab.runner.go.set()
    assert lab.outputs(running) == expected([1], 4)
    assert all(row.sequence_id == running for plan in lab.runner.steps for row in plan.rows)


def test_a_step_that_fails_fails_its_sequences_and_the_engine_lives_on(lab: Lab) -> None:
    lab.runner.fail_next = True
    number = lab.submit([1, 2, 3])
    assert lab.load_after(lambda report: bool(report.failed)).failed == [number]
    assert lab.outputs(lab.submit([1, 2, 3])) == expected([1, 2, 3], 4)


def test_what_a_failed_step_took_out_of_the_cache_is_told_with_it(lab: Lab) -> None:
    lab.runner.fail_next = True
    lab.submit(list(range(9)), boundaries=(BoundaryPosition(b"d", 8),))
    report = lab.load_after(lambda report: bool(report.failed))
    assert [one.kind for one in report.events] == [EventKind.STORED, EventKind.EVICTED]
    assert lab.engine.snapshot() == ([], 2)


def test_the_share_of_the_cache_is_reported_once_per_sequence(lab: Lab) -> None:
    prompt = list(range(18))
    lab.outputs(lab.submit(prompt))
    number = lab.submit(prompt)
    reports: list[StepReport] = []
    while not any(p.finish for r in reports for p in r.progress):
        reports.append(lab.reports.get(timeout=10))
    assert [r.first_cached for r in reports if r.first_cached] == [{number: 17}]


def test_times_are_told_for_every_sequence_and_kept_for_none(lab: Lab) -> None:
    lab.submit([1, 2, 3], max_tokens=4)
    lab.submit([4, 5], max_tokens=1)
    told: list[Durations] = []
    while sum(len(one.tpot_s) for one in told) < 1 or sum(len(one.ttft_s) for one in told) < 2:
        told.append(lab.reports.get(timeout=10).durations)
    assert sum(len(one.queue_s) for one in told) == 2
    assert sum(len(one.tpot_s) for one in told) == 1
    assert all(value >= 0 for one in told for value in (*one.queue_s, *one.ttft_s, *one.tpot_s))
    assert len(lab.engine._stopwatch) == 0


def test_a_lease_that_ends_gives_its_pages_back_while_nobody_asks(lab: Lab) -> None:
    prompt = list(range(20))
    lab.outputs(lab.submit(prompt))
    lab.engine.pin(b"key", CacheScope(), pack_tokens(prompt), 0.2)
    loads: list[int] = []
    while not loads or loads[-1] > 0 or max(loads) == 0:
        loads.append(lab.reports.get(timeout=10).load.used_pages)
    assert max(loads) == 5
    assert lab.engine.load.used_pages == 0


def test_aborting_what_never_was_or_has_ended_does_nothing(lab: Lab) -> None:
    number = lab.submit([1])
    lab.outputs(number)
    lab.engine.abort([number, 999])
    assert lab.outputs(lab.submit([2])) == expected([2], 4)


def test_stop_gives_up_the_step_under_way_and_reports_its_sequences(lab: Lab) -> None:
    lab.hold_inside()
    number = lab.submit([1], max_tokens=1000)
    assert lab.runner.inside.wait(10)
    stopper = threading.Thread(target=lab.engine.stop)
    stopper.start()
    while not lab.engine._stopping:
        time.sleep(0.001)
    lab.runner.go.set()
    stopper.join(10)
    assert not stopper.is_alive()
    assert lab.runner.abandoned == 1
    assert lab.load_after(lambda report: bool(report.failed)).failed == [number]


def test_a_defect_outside_the_step_ends_the_engine_and_is_told() -> None:
    lab, died = Lab(BrokenCache), threading.Event()
    lab.engine.start(died.set)
    lab.submit([1, 2, 3])
    assert died.wait(10)
    assert lab.engine.broken
    lab.engine.stop()
    assert not lab.engine.alive
