"""Between the links and the engine, on the asyncio side: every request's one life and one end.

    submit -> prepare (in a thread when it is long) -> engine -> reports -> RequestStream -> outlet

Every submission ends with exactly one `done` or `failed`, whatever happens to it, as long as its
link lives. A worker that leaves hands back what it can't finish (`Draining`), begun or not. One
whose engine died says nothing more: its links close, so that gateways see a lost worker and go on
elsewhere. Only a step that can't be computed fails its requests (`InternalError`): what breaks
one worker must not go on to the next.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from worker.cache.boundaries import BoundaryEvent
from worker.engine import Engine, StepReport
from worker.errors import (
    Cancelled,
    Draining,
    InternalError,
    InvalidRequest,
    Overloaded,
    RequestFailed,
)
from worker.intake import Intake, Prepared, specs
from worker.scheduler import Progress
from worker.stream import RequestStream
from worker.submission import ChatInput, Output, PairInput, Submission, Usage
from worker.text.tokenizer import Tokenizer
from worker.text.turns import Opening, TurnIds

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
    """assigned: what it adds to assigned_tokens now. begun: in the engine's hands, or beyond.

    opening: what its answers go on from, where they can be remembered.
    """

    outlet: Outlet
    request_id: int
    trace_id: str
    tenant: str
    assigned: int = 0
    begun: bool = False
    stream: RequestStream | None = None
    opening: Opening | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """max_waiting: sequences that may be in the engine beyond max_running."""

    max_running: int
    max_waiting: int


@dataclass(slots=True)
class Tallies:
    """Ends by kind, for metrics: accepted == done + all failed + live, always.

    turns: chats with an answer in them, by whose ids it has.
    """

    accepted: int = 0
    done: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    turns: Counter[TurnIds] = field(default_factory=Counter)


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
        self._assigned: Counter[Outlet] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._long = asyncio.Semaphore(LONG_AT_ONCE)
        self._num_preparing = 0
        self._lost = False
        self.draining = False
        self.tallies = Tallies()

    def attach(self, engine: Engine) -> None:
        """Names the engine. `on_report` takes its reports, on the event loop."""
        self._engine = engine

    @property
    def num_live(self) -> int:
        """Requests accepted and not ended."""
        return len(self._requests)

    @property
    def assigned_tokens(self) -> int:
        """Prompt tokens expected of the requests that have had no output yet."""
        return self._assigned.total()

    def assigned_to(self, outlet: Outlet) -> int:
        """Of them, those that came over one link."""
        return self._assigned[outlet]

    async def idle(self) -> None:
        """Returns when no request is live, or the engine is gone and none will end."""
        while self._requests and not self._lost:
            self._ended.clear()
            await self._ended.wait()

    def leave(self) -> None:
        """Takes nothing new, and hands back what waits: it can begin elsewhere at once."""
        self.draining = True
        self._hand_back([one for one in self._requests.values() if not one.begun])

    def hand_back(self) -> None:
        """Hands back everything that's left: other workers go on where this one stood."""
        self.draining = True
        self._hand_back(list(self._requests.values()))

    def abandon(self) -> None:
        """Takes nothing new; nothing that's live ends but with its link: the engine is no more."""
        self.draining = self._lost = True
        self._ended.set()

    def connect(self, outlet: Outlet) -> None:
        """A link is up."""
        self._outlets.add(outlet)

    def disconnect(self, outlet: Outlet) -> None:
        """A link is gone: what it carried is aborted, and nobody is told."""
        self._outlets.discard(outlet)
        for request in [one for one in self._requests.values() if one.outlet is outlet]:
            self._end(request, "disconnected")
        del self._assigned[outlet]

    def submit(self, outlet: Outlet, submission: Submission) -> None:
        """Accepts a request; it ends through the outlet."""
        request = _Request(outlet, submission.request_id, submission.trace_id, submission.tenant)
        if (outlet, submission.request_id) in self._requests:
            log.error("request id used twice", extra={"request_id": submission.trace_id})
            return
        self.tallies.accepted += 1
        self._requests[(outlet, submission.request_id)] = request
        self._assign(request, submission.expected_tokens)
        if self.draining:
            self._fail(request, Draining())
        elif submission.n > self._capacity:
            self._fail(request, _too_many(submission.n, self._capacity))
        elif len(self._by_sequence) + self._num_preparing + submission.num_open > self._capacity:
            self._fail(request, Overloaded())
        elif _size(submission) <= INLINE_BYTES:
            self._start(request, submission)
        else:
            self._num_preparing += submission.num_open
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
                request.begun = True
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
                prepared, stream = await asyncio.to_thread(self._prepare, submission)
        except RequestFailed as error:
            self._fail(request, error)
        except Exception:
            self._defect(request)
        else:
            self._guarded(request, lambda: self._enter(request, submission, prepared, stream))
        finally:
            self._num_preparing -= submission.num_open

    def _start(self, request: _Request, submission: Submission) -> None:
        self._guarded(
            request,
            lambda: self._enter(request, submission, *self._prepare(submission)),
        )

    def _prepare(self, submission: Submission) -> tuple[Prepared, RequestStream]:
        """Returns the request in tokens, and what other workers answered of it replayed."""
        prepared = self._intake.prepare(submission)
        return prepared, RequestStream.open(
            submission, prepared.prompt_len, prepared.stopping, self._tokenizer
        )

    def _enter(
        self, request: _Request, submission: Submission, prepared: Prepared, stream: RequestStream
    ) -> None:
        """Hands a prepared request to the engine, unless it has ended meanwhile."""
        if request.ended:
            return
        assert self._engine is not None
        sequences = specs(prepared, submission, stream.open_choices, self._ids)
        stream.enter(sequences)
        request.stream, request.opening = stream, prepared.opening
        if prepared.turn is not None:
            self.tallies.turns[prepared.turn] += 1
        for spec in sequences:
            self._by_sequence[spec.id] = request
        self._engine.submit(sequences)
        for output in stream.replayed:
            self._give(request, output)
        if stream.finished:
            self._done(request, stream)
        if stream.replayed or stream.finished:
            request.outlet.flush([])

    def _advance(self, request: _Request, progress: Progress) -> None:
        stream = request.stream
        assert stream is not None
        assert self._engine is not None
        output = stream.push(progress)
        if output is None:
            return
        self._give(request, output)
        if output.finish is None:
            return
        self._by_sequence.pop(progress.sequence_id, None)
        if progress.finish is None:
            self._engine.abort([progress.sequence_id])
        if stream.finished:
            self._done(request, stream)

    def _give(self, request: _Request, output: Output) -> None:
        request.begun = True
        self._assign(request, 0)
        request.outlet.output(request.request_id, output)

    def _done(self, request: _Request, stream: RequestStream) -> None:
        self._end(request, "done")
        request.outlet.done(request.request_id, stream.usage)

    def _assign(self, request: _Request, tokens: int) -> None:
        """Counts the request with so many tokens from now on."""
        self._assigned[request.outlet] += tokens - request.assigned
        request.assigned = tokens

    def _hand_back(self, requests: list[_Request]) -> None:
        """Fails them as a worker that leaves, unless it is lost and says nothing more."""
        for request in [] if self._lost else requests:
            self._fail(request, Draining())

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
        self._assign(request, 0)
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
            self._remember(request, request.stream)
        return True

    def _remember(self, request: _Request, stream: RequestStream) -> None:
        """Keeps what the choices said, also of one that was cut."""
        if request.opening is None:
            return
        for choice in stream.choices:
            text, dropped = "".join(choice.given), choice.detokenizer.dropped_space
            self._intake.remember(request.opening, choice.tokens, text, drops_space=dropped)


def _size(submission: Submission) -> int:
    """Bytes that are tokenised, or replayed."""
    prompt = submission.prompt
    begun = sum(len(one.tokens) for one in submission.resume)
    if isinstance(prompt, ChatInput):
        return len(prompt.messages) + len(prompt.tools) + begun
    if isinstance(prompt, PairInput):
        return len(prompt.query) + len(prompt.document) + len(prompt.instruction)
    return len(prompt) + begun


def _too_many(n: int, capacity: int) -> InvalidRequest:
    return InvalidRequest(
        "n", f"n is {n}; this worker takes at most {capacity} sequences, running and waiting."
    )
