"""Between the links and the engine, on the asyncio side: every request's one life and one end.

    submit -> prepare (in a thread when it is long) -> engine -> reports -> RequestStream -> outlet

Every submission ends with exactly one `done` or `failed`, whatever happens to it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from worker.cache.boundaries import BoundaryEvent
from worker.engine import Engine, StepReport
from worker.errors import Cancelled, Draining, InternalError, Overloaded, RequestFailed
from worker.intake import Intake, Prepared, specs
from worker.scheduler import Progress
from worker.stream import RequestStream
from worker.submission import ChatInput, Output, Submission, Usage
from worker.text.tokenizer import Tokenizer

log = logging.getLogger("pando.worker.service")

# Bytes of prompt that are tokenised without leaving the event loop (about a millisecond).
INLINE_BYTES = 4096
# Longer prompts tokenised at once: each takes about a hundred bytes a token meanwhile.
LONG_AT_ONCE = 2


class Outlet(Protocol):
    """One link, as the service sees it. Nothing here blocks or raises."""

    def output(self, request_id: int, output: Output) -> None:
        """New tokens of a request."""

    def done(self, request_id: int, usage: Usage) -> None:
        """A request's end."""

    def failed(self, request_id: int, error: RequestFailed) -> None:
        """A request's other end."""

    def flush(self, events: list[BoundaryEvent]) -> None:
        """One engine step is over: send what has gathered."""


@dataclass(eq=False, slots=True)
class _Request:
    outlet: Outlet
    request_id: int
    trace_id: str
    tenant: str
    stream: RequestStream | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """max_waiting: sequences that may be in the engine beyond max_running."""

    max_running: int
    max_waiting: int


@dataclass(slots=True)
class Tallies:
    """Ends by kind, for metrics: accepted == done + all failed + live, always."""

    accepted: int = 0
    done: int = 0
    failed: dict[str, int] = field(default_factory=dict)


class Service:
    """Lives on one event loop. The engine is attached once it is built."""

    def __init__(self, intake: Intake, tokenizer: Tokenizer, limits: ServiceLimits) -> None:
        self._intake = intake
        self._tokenizer = tokenizer
        self._limits = limits
        self._engine: Engine | None = None
        self._ids = itertools.count(1)
        self._outlets: set[Outlet] = set()
        self._requests: dict[tuple[Outlet, int], _Request] = {}
        self._by_sequence: dict[int, _Request] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._long = asyncio.Semaphore(LONG_AT_ONCE)
        self._num_preparing = 0
        self.draining = False
        self.tallies = Tallies()

    def attach(self, engine: Engine) -> None:
        """Names the engine. `on_report` takes its reports, on the event loop."""
        self._engine = engine

    @property
    def num_live(self) -> int:
        """Requests accepted and not ended."""
        return len(self._requests)

    async def idle(self) -> None:
        """Returns when no request is live."""
        while self._requests:
            self._ended.clear()
            await self._ended.wait()

    def abandon(self) -> None:
        """Fails every request and takes nothing new: the engine is no more."""
        self.draining = True
        for request in list(self._requests.values()):
            self._fail(request, InternalError())

    def connect(self, outlet: Outlet) -> None:
        """A link is up."""
        self._outlets.add(outlet)

    def disconnect(self, outlet: Outlet) -> None:
        """A link is gone: what it carried is aborted, and nobody is told."""
        self._outlets.discard(outlet)
        for request in [one for one in self._requests.values() if one.outlet is outlet]:
            self._end(request, "disconnected")

    def submit(self, outlet: Outlet, submission: Submission) -> None:
        """Accepts a request; it ends through the outlet."""
        request = _Request(outlet, submission.request_id, submission.trace_id, submission.tenant)
        if (outlet, submission.request_id) in self._requests:
            log.error("request id used twice", extra={"request_id": submission.trace_id})
            return
        self.tallies.accepted += 1
        self._requests[(outlet, submission.request_id)] = request
        if self.draining:
            self._fail(request, Draining())
        elif len(self._by_sequence) + self._num_preparing + submission.n > self._capacity:
            self._fail(request, Overloaded())
        elif _size(submission) <= INLINE_BYTES:
            self._start(request, submission)
        else:
            self._num_preparing += submission.n
            task = asyncio.get_running_loop().create_task(self._start_long(request, submission))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self, outlet: Outlet, request_id: int) -> None:
        """Takes a request back; one that has ended already stays ended."""
        request = self._requests.get((outlet, request_id))
        if request is not None:
            self._fail(request, Cancelled())

    def on_report(self, report: StepReport) -> None:
        """Spreads one engine step over the requests, then lets every link send once."""
        for sequence_id, cached_tokens in report.first_cached.items():
            request = self._by_sequence.get(sequence_id)
            if request is not None and request.stream is not None:
                request.stream.admitted(sequence_id, cached_tokens)
        for progress in report.progress:
            request = self._by_sequence.get(progress.sequence_id)
            if request is not None:
                self._guarded(request, partial(self._advance, request, progress))
        for sequence_id in report.failed:
            request = self._by_sequence.get(sequence_id)
            if request is not None:
                self._fail(request, InternalError())
        for outlet in list(self._outlets):
            outlet.flush(report.events)

    @property
    def _capacity(self) -> int:
        return self._limits.max_running + self._limits.max_waiting

    async def _start_long(self, request: _Request, submission: Submission) -> None:
        try:
            async with self._long:
                if request.ended:
                    return
                prepared = await asyncio.to_thread(self._intake.prepare, submission)
        except RequestFailed as error:
            self._fail(request, error)
        except Exception:
            self._defect(request)
        else:
            self._guarded(request, lambda: self._enter(request, submission, prepared))
        finally:
            self._num_preparing -= submission.n

    def _start(self, request: _Request, submission: Submission) -> None:
        self._guarded(
            request,
            lambda: self._enter(request, submission, self._intake.prepare(submission)),
        )

    def _enter(self, request: _Request, submission: Submission, prepared: Prepared) -> None:
        """Hands a prepared request to the engine, unless it has ended meanwhile."""
        if request.ended:
            return
        assert self._engine is not None
        sequences = specs(prepared, submission, self._ids)
        request.stream = RequestStream.open(sequences, submission, self._tokenizer)
        for spec in sequences:
            self._by_sequence[spec.id] = request
        self._engine.submit(sequences)

    def _advance(self, request: _Request, progress: Progress) -> None:
        stream = request.stream
        assert stream is not None
        assert self._engine is not None
        output = stream.push(progress)
        if output is None:
            return
        request.outlet.output(request.request_id, output)
        if output.finish is None:
            return
        self._by_sequence.pop(progress.sequence_id, None)
        if progress.finish is None:
            self._engine.abort([progress.sequence_id])
        if stream.finished:
            self._end(request, "done")
            request.outlet.done(request.request_id, stream.usage)

    def _guarded(self, request: _Request, action: Callable[[], None]) -> None:
        """Runs an action for one request; whatever it raises ends that request and no other."""
        try:
            action()
        except RequestFailed as error:
            self._fail(request, error)
        except Exception:
            self._defect(request)

    def _defect(self, request: _Request) -> None:
        """Logs the exception at hand and fails the request with it."""
        log.exception(
            "request failed", extra={"request_id": request.trace_id, "tenant": request.tenant}
        )
        self._fail(request, InternalError())

    def _fail(self, request: _Request, error: RequestFailed) -> None:
        if self._end(request, type(error).__name__):
            request.outlet.failed(request.request_id, error)
            request.outlet.flush([])

    def _end(self, request: _Request, kind: str) -> bool:
        """Forgets a request and takes it out of the engine; False when it had ended before."""
        if request.ended:
            return False
        request.ended = True
        self._ended.set()
        del self._requests[(request.outlet, request.request_id)]
        if kind == "done":
            self.tallies.done += 1
        else:
            self.tallies.failed[kind] = self.tallies.failed.get(kind, 0) + 1
        if request.stream is not None:
            left = request.stream.unfinished_ids
            for sequence_id in left:
                self._by_sequence.pop(sequence_id, None)
            if left and self._engine is not None:
                self._engine.abort(left)
        return True


def _size(submission: Submission) -> int:
    prompt = submission.prompt
    return (
        len(prompt.messages) + len(prompt.tools) if isinstance(prompt, ChatInput) else len(prompt)
    )
