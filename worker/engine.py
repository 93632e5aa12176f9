"""The loop: plan, run, apply. One thread of its own; a queue of commands in, reports out.

    asyncio side                     engine thread
    submit, abort  -- commands -->   take commands; plan; run; apply
    on_report     <-- reports  --    tokens, failures, load, cache events of one step
    on_death      <--------------    the loop ended by a defect: nothing more will come

A step that can't be computed fails its sequences, and the loop goes on. An error anywhere else
leaves scheduler and cache in a state that nobody knows: the loop ends for good. So it does when
the runner says that it is broken (EngineBroken): nobody is told, and streams go on elsewhere.
While a step is computed, the runner calls `checkpoint` between layers; aborts take effect there,
so a hang-up frees its pages within a layer's time, and a step that nobody wants is given up.

Masks of constrained sequences are computed in other threads between two steps. A step waits for
them a small part of the last step's time; whoever has none by then sits it out. Where nobody else
has anything to compute, the thread sleeps until one comes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from worker.cache.boundaries import BoundaryEvent
from worker.cache.scope import CacheScope
from worker.errors import EngineBroken, Exhausted, RequestFailed, failure_of
from worker.progress import Counters, Progress, Valued
from worker.scheduler import Scheduler
from worker.sequence import SequenceSpec
from worker.step import StepPlan, StepResult
from worker.stopwatch import Durations, Stopwatch

log = logging.getLogger("pando.worker.engine")

# Of the last step's time, how long the next one waits for masks.
MASK_GRACE = 0.03


class StepAbandoned(Exception):
    """Raised through the runner when every sequence of the step under way has been aborted."""


class StepRunner(Protocol):
    """Computes a plan: the other side of the torch line."""

    def run(self, plan: StepPlan, checkpoint: Callable[[], None]) -> StepResult:
        """Returns a sample for every row that asks for one; calls checkpoint once per layer.

        Whatever checkpoint raises passes through. EngineBroken: it will compute nothing more.
        """


@dataclass(frozen=True, slots=True)
class Load:
    """What the worker has to do and what its pool holds, at one moment.

    unused_slots: of pages that sequences hold, slots that nothing was put into yet.
    """

    running: int = 0
    waiting: int = 0
    uncomputed_tokens: int = 0
    total_pages: int = 0
    used_pages: int = 0
    cached_pages: int = 0
    evicted_pages: int = 0
    unused_slots: int = 0
    counters: Counters = field(default_factory=Counters)


@dataclass(frozen=True, slots=True)
class StepReport:
    """What became of one step, or of commands between steps.

    first_cached: prompt tokens found in the cache, for sequences admitted since the last report.
    failed: sequences that ended because the step could not be computed. began: when the step did,
    by the engine's clock; None without one. step_s: then 0, and where it could not be computed.
    step_rows: sequences in the step. refused: sequences that their grammar ended, or that found no
    memory, and why. mask_s: seconds of each mask since the last report. preempted: sequences that
    gave their pages back since then, each time.
    """

    load: Load
    progress: list[Progress] = field(default_factory=list)
    valued: list[Valued] = field(default_factory=list)
    first_cached: dict[int, int] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)
    events: list[BoundaryEvent] = field(default_factory=list)
    began: float | None = None
    step_s: float = 0.0
    step_tokens: int = 0
    step_rows: int = 0
    durations: Durations = field(default_factory=Durations)
    refused: dict[int, RequestFailed] = field(default_factory=dict)
    mask_s: list[float] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)

    def span(self, clock: Callable[[], float]) -> tuple[float, float]:
        """When the step began and when it ended; twice the time now where there was none."""
        began = clock() if self.began is None else self.began
        return began, began + self.step_s


@dataclass(frozen=True, slots=True)
class _Submit:
    spec: SequenceSpec


@dataclass(frozen=True, slots=True)
class _Abort:
    sequence_id: int


@dataclass(frozen=True, slots=True)
class _Pin:
    key: bytes
    scope: CacheScope
    tokens: bytes
    ttl_s: float


class Engine:
    """Runs a scheduler and a runner until `stop`. submit and abort may be called from any thread.

    on_report is called in the engine's thread and must not block.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: StepRunner,
        on_report: Callable[[StepReport], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._on_report = on_report
        self._clock = clock
        self._commands: deque[_Submit | _Abort | _Pin] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._on_death: Callable[[], object] = _nothing
        self._awaiting_admission: set[int] = set()
        self._stopwatch = Stopwatch()
        self._last_step_s = 0.0
        # What was forced between two steps, told with the next report.
        self._untold: list[Progress] = []
        scheduler.guidance.wake(self._awake)
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self.broken = False
        self.load = self._measure()

    def start(self, on_death: Callable[[], object]) -> None:
        """Starts the thread, and those of masks.

        on_death: called in it, once `broken` is set, when a defect has ended the loop.
        """
        self._on_death = on_death
        self._scheduler.guidance.start()
        self._thread.start()

    def stop(self) -> None:
        """Ends the loop after the step under way, which is given up, and joins the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()
        self._scheduler.guidance.close()

    @property
    def alive(self) -> bool:
        """Whether the loop runs."""
        return self._thread.is_alive()

    def submit(self, specs: list[SequenceSpec]) -> None:
        """Queues sequences; each one lives until its Progress carries a finish, or it fails."""
        self._command([_Submit(spec) for spec in specs])

    def abort(self, sequence_ids: list[int]) -> None:
        """Ends sequences without a word; ids that have ended are ignored."""
        self._command([_Abort(one) for one in sequence_ids])

    def pin(self, key: bytes, scope: CacheScope, tokens: bytes, ttl_s: float) -> None:
        """Keeps a prefix's pages under a key for so long, if they fit; 0: no longer."""
        self._command([_Pin(key, scope, tokens, ttl_s)])

    def snapshot(self) -> tuple[list[BoundaryEvent], int]:
        """Returns the boundaries in the cache and the number of the last event."""
        return self._scheduler.cache.tags.snapshot()

    def step(self) -> bool:
        """Takes the commands and computes one step; returns whether there was anything to do."""
        changed = self._take_commands() | (self._scheduler.expire() > 0)
        told = self._settle()
        plan = self._scheduler.plan()
        if plan is None:
            if changed or self._untold:
                self._report(StepReport(self._measure(), events=self._take_events()))
            return changed or told or self._scheduler.guidance.has_news
        started = self._clock()
        first_cached = self._newly_admitted(plan, started)
        try:
            result = self._runner.run(plan, self._checkpoint)
        except EngineBroken:
            raise
        except Exception as error:
            if not isinstance(error, StepAbandoned):
                log.exception("step failed", extra={"rows": len(plan.rows)})
            self._fail_step(error, first_cached, started)
            return True
        progress, valued = self._scheduler.apply(result), self._scheduler.valued(result)
        ended = self._clock()
        self._last_step_s = ended - started
        self._note(progress, ended)
        self._note_values(valued, ended)
        self._report(
            StepReport(
                self._measure(),
                progress,
                valued,
                first_cached,
                events=self._take_events(),
                began=started,
                step_s=ended - started,
                step_tokens=plan.num_tokens,
                step_rows=len(plan.rows),
                durations=self._stopwatch.take(),
            )
        )
        return True

    def _settle(self) -> bool:
        """Takes over what grammars have found out; returns whether any of it is to be told."""
        self._scheduler.guidance.wait(MASK_GRACE * self._last_step_s)
        news = self._scheduler.settle()
        self._note(news.progress, self._clock())
        for sequence_id in news.failures:
            self._gone(sequence_id)
        self._untold += news.progress
        if news.is_urgent:
            self._report(
                StepReport(self._measure(), events=self._take_events(), refused=news.failures)
            )
        return bool(news.progress or news.failures)

    def _note_values(self, valued: list[Valued], now: float) -> None:
        """Counts each as a first and last token."""
        for one in valued:
            self._stopwatch.token(one.sequence_id, now, is_last=True)

    def _note(self, progress: list[Progress], now: float) -> None:
        """Counts tokens that have come."""
        for one in progress:
            self._stopwatch.token(
                one.sequence_id, now, is_last=one.finish is not None, count=len(one.tokens)
            )
            if one.finish is not None:
                self._awaiting_admission.discard(one.sequence_id)

    def _fail_step(self, error: Exception, first_cached: dict[int, int], began: float) -> None:
        """Nobody's fault where memory was short: each of them may go on elsewhere."""
        failed = self._scheduler.fail()
        for sequence_id in failed:
            self._stopwatch.gone(sequence_id)
        cause = failure_of(error)
        told = StepReport(
            self._measure(), first_cached=first_cached, events=self._take_events(), began=began
        )
        if isinstance(cause, Exhausted):
            self._report(replace(told, refused=dict.fromkeys(failed, cause)))
        else:
            self._report(replace(told, failed=failed))

    def _loop(self) -> None:
        try:
            while not self._stopping:
                if not self.step():
                    self._sleep()
        except Exception:
            log.critical("engine died", exc_info=True)
            self.broken = True
            self._on_death()

    def _sleep(self) -> None:
        with self._wake:
            idle = not self._commands and not self._scheduler.guidance.has_news
            if idle and not self._stopping:
                self._wake.wait(self._scheduler.lease_s())

    def _awake(self) -> None:
        with self._wake:
            self._wake.notify()

    def _command(self, commands: list[_Submit] | list[_Abort] | list[_Pin]) -> None:
        with self._wake:
            self._commands.extend(commands)
            self._wake.notify()

    def _take_commands(self) -> bool:
        taken = False
        while self._commands:
            command = self._commands.popleft()
            taken = True
            if isinstance(command, _Submit):
                self._awaiting_admission.add(command.spec.id)
                self._stopwatch.came(command.spec.id, self._clock())
                self._scheduler.add(command.spec)
            elif isinstance(command, _Pin):
                self._scheduler.pin(command.key, command.scope, command.tokens, command.ttl_s)
            else:
                self._abort(command.sequence_id)
        return taken

    def _checkpoint(self) -> None:
        """Lets aborts take effect within the step; new sequences wait for the next plan."""
        if self._stopping:
            raise StepAbandoned
        if not any(isinstance(command, _Abort) for command in list(self._commands)):
            return
        self._take_commands()
        self.load = self._measure()
        if self._scheduler.step_is_void:
            raise StepAbandoned

    def _abort(self, sequence_id: int) -> None:
        self._gone(sequence_id)
        self._scheduler.abort(sequence_id)

    def _gone(self, sequence_id: int) -> None:
        self._awaiting_admission.discard(sequence_id)
        self._stopwatch.gone(sequence_id)

    def _newly_admitted(self, plan: StepPlan, began: float) -> dict[int, int]:
        """What the cache gave those whose first step this is; the step began then."""
        self._stopwatch.planned((row.sequence_id for row in plan.rows), began)
        first: dict[int, int] = {}
        for row in plan.rows:
            if row.sequence_id in self._awaiting_admission:
                self._awaiting_admission.discard(row.sequence_id)
                first[row.sequence_id] = self._scheduler.cached_tokens(row.sequence_id) or 0
        return first

    def _take_events(self) -> list[BoundaryEvent]:
        return self._scheduler.cache.tags.take_events()

    def _report(self, report: StepReport) -> None:
        """What has been forced meanwhile stands in front of what the step sampled."""
        untold, self._untold = self._untold, []
        preempted, self._scheduler.preempted = self._scheduler.preempted, []
        self.load = report.load
        told = replace(
            report,
            progress=[*untold, *report.progress],
            mask_s=self._scheduler.guidance.take_seconds(),
            preempted=preempted,
        )
        self._on_report(told)

    def _measure(self) -> Load:
        scheduler, pool = self._scheduler, self._scheduler.pool
        return Load(
            running=scheduler.num_running,
            waiting=scheduler.num_waiting,
            uncomputed_tokens=scheduler.uncomputed_tokens,
            total_pages=pool.num_pages,
            used_pages=pool.num_used,
            cached_pages=pool.num_cached,
            evicted_pages=pool.evicted_total,
            unused_slots=scheduler.unused_slots,
            counters=scheduler.counters,
        )


def _nothing() -> None:
    """Nobody wants to know."""
