"""Between the links and the engine, on the asyncio side: every request's one life and one end.

    submit -> prepare (in a thread when it is long) -> engine -> reports -> RequestStream -> outlet

Every submission ends with exactly one `done` or `failed`, whatever happens to it, as long as its
link lives. A worker that leaves hands back what it can't finish (`Draining`), begun or not. One
whose engine died says nothing more: its links close, so that gateways see a lost worker and go on
elsewhere. Only a step that can't be computed fails its requests (`InternalError`): what breaks
one worker must not go on to the next, but for want of memory (`Exhausted`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from worker.engine import Engine, StepReport
from worker.errors import (
    Cancelled,
    Draining,
    InternalError,
    InvalidRequest,
    Overloaded,
    RequestFailed,
    failure_of,
)
from worker.intake import Intake
from worker.live import LiveRequest, Outlet, ServiceLimits, Tallies
from worker.prepared import Prepared, specs
from worker.programs.desk import Desk
from worker.programs.house import node_output
from worker.progress import Progress, Valued
from worker.sequence import SequenceSpec
from worker.stream import RequestStream
from worker.submission import NodeOutput, Output, ProgramInput, Submission
from worker.text.tokenizer import Tokenizer

log = logging.getLogger("pando.worker.service")

# Bytes of prompt that are tokenised without leaving the event loop (about a millisecond).
INLINE_BYTES = 4096
# Longer prompts tokenised at once: each takes about a hundred bytes a token meanwhile.
LONG_AT_ONCE = 2


class Service:
    """Lives on one event loop. The engine is attached once it is built."""

    def __init__(self, intake: Intake, tokenizer: Tokenizer, limits: ServiceLimits) -> None:
        self._intake = intake
        self._tokenizer = tokenizer
        self._limits = limits
        self._engine: Engine | None = None
        self._ids = itertools.count(1)
        self._outlets: set[Outlet] = set()
        self._requests: dict[tuple[Outlet, int], LiveRequest] = {}
        self._by_sequence: dict[int, LiveRequest] = {}
        self._assigned: Counter[Outlet] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._long = asyncio.Semaphore(LONG_AT_ONCE)
        self._num_preparing = 0
        self._lost = False
        self.draining = False
        self._programs = intake.programs()
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
        request = LiveRequest(outlet, submission.request_id, submission.trace_id, submission.tenant)
        if (outlet, submission.request_id) in self._requests:
            log.error("request id used twice", extra={"request_id": submission.trace_id})
            return
        self.tallies.accepted += 1
        self._requests[(outlet, submission.request_id)] = request
        self._assign(request, submission.expected_tokens)
        if self.draining:
            self._fail(request, Draining())
        elif isinstance(submission.prompt, ProgramInput):
            self._start_program(request, submission, submission.prompt)
        elif submission.n > self._capacity:
            self._fail(request, _too_many(submission.n, self._capacity))
        elif len(self._by_sequence) + self._num_preparing + submission.num_open > self._capacity:
            self._fail(request, Overloaded())
        elif submission.num_bytes <= INLINE_BYTES and not submission.is_restricted:
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
            if request is not None:
                request.admitted(sequence_id, cached_tokens)
        for progress in report.progress:
            self._progressed(progress)
        for valued in report.valued:
            request = self._by_sequence.get(valued.sequence_id)
            if request is not None:
                self._guarded(request, partial(self._valued, request, valued))
        for sequence_id, error in report.refused.items():
            self._refused(sequence_id, error)
        for sequence_id in report.failed:
            request = self._by_sequence.get(sequence_id)
            if request is not None:
                self._fail(request, InternalError())
        for outlet in list(self._outlets):
            outlet.flush(report.events)

    def _progressed(self, progress: Progress) -> None:
        request = self._by_sequence.get(progress.sequence_id)
        if request is not None and request.desk is not None:
            if progress.finish is not None:
                del self._by_sequence[progress.sequence_id]
            request.desk.came(progress.sequence_id, progress)
        elif request is not None:
            self._guarded(request, partial(self._advance, request, progress))

    def _refused(self, sequence_id: int, error: RequestFailed) -> None:
        request = self._by_sequence.get(sequence_id)
        if request is not None and request.desk is not None:
            del self._by_sequence[sequence_id]
            request.desk.came(sequence_id, error)
        elif request is not None:
            self._fail(request, error)

    def _start_program(
        self, request: LiveRequest, submission: Submission, program: ProgramInput
    ) -> None:
        """Runs a program in a task of its own: its branches wait for one another, not for steps."""

        # A branch may take one more step before its program's end reaches it.
        def enter(specs: Sequence[SequenceSpec]) -> None:
            if request.ended:
                return
            assert self._engine is not None
            self._by_sequence.update((spec.id, request) for spec in specs)
            self._engine.submit(list(specs))

        def send(node: NodeOutput) -> None:
            if request.ended:
                return
            self._give(request, node_output(node))
            asyncio.get_running_loop().call_soon(request.outlet.flush, [])

        request.desk = Desk(enter, self._leave, send, self._ids, self._intake.grammars)
        work = self._run_program(request, submission, program, request.desk)
        request.task = asyncio.get_running_loop().create_task(work)

    async def _run_program(
        self, request: LiveRequest, submission: Submission, program: ProgramInput, desk: Desk
    ) -> None:
        try:
            async with self._programs.opened(submission, program, desk) as run:
                await run.run()
        except RequestFailed as error:
            self._fail(request, error)
        except BaseException as error:
            self._defect(request, error)
        else:
            kept = self._programs.close(submission, program, run)
            if kept is not None and self._engine is not None:
                self._engine.pin(kept.key, run.scope, kept.tokens, kept.ttl_s)
            self._end(request, "done")
            request.outlet.done(request.request_id, run.usage)
            request.outlet.flush([])

    @property
    def _capacity(self) -> int:
        return self._limits.max_running + self._limits.max_waiting

    async def _start_long(self, request: LiveRequest, submission: Submission) -> None:
        try:
            async with self._long:
                if request.ended:
                    return
                prepared, stream = await asyncio.to_thread(self._prepare, submission)
        except RequestFailed as error:
            self._fail(request, error)
        except BaseException as error:
            self._defect(request, error)
        else:
            self._guarded(request, lambda: self._enter(request, submission, prepared, stream))
        finally:
            self._num_preparing -= submission.num_open

    def _start(self, request: LiveRequest, submission: Submission) -> None:
        self._guarded(
            request,
            lambda: self._enter(request, submission, *self._prepare(submission)),
        )

    def _prepare(self, submission: Submission) -> tuple[Prepared, RequestStream]:
        """Returns the request in tokens, and what other workers answered of it replayed."""
        prepared = self._intake.prepare(submission)
        if prepared.answer is not None:
            return prepared, RequestStream.answered(prepared.prompt_len, prepared.answer)
        return prepared, RequestStream.open(
            submission, prepared.prompt_len, prepared.stopping, self._tokenizer, prepared.parting
        )

    def _enter(
        self,
        request: LiveRequest,
        submission: Submission,
        prepared: Prepared,
        stream: RequestStream,
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

    def _advance(self, request: LiveRequest, progress: Progress) -> None:
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

    def _valued(self, request: LiveRequest, valued: Valued) -> None:
        stream = request.stream
        assert stream is not None
        output = stream.valued(valued)
        self._by_sequence.pop(valued.sequence_id, None)
        if output is not None:
            self._give(request, output)
        if stream.finished:
            self._done(request, stream)

    def _give(self, request: LiveRequest, output: Output) -> None:
        request.begun = True
        self._assign(request, 0)
        request.outlet.output(request.request_id, request.telling(output))

    def _done(self, request: LiveRequest, stream: RequestStream) -> None:
        self._end(request, "done")
        request.outlet.done(request.request_id, stream.usage)

    def _assign(self, request: LiveRequest, tokens: int) -> None:
        """Counts the request with so many tokens from now on."""
        self._assigned[request.outlet] += tokens - request.assigned
        request.assigned = tokens

    def _hand_back(self, requests: list[LiveRequest]) -> None:
        """Fails them as a worker that leaves, unless it is lost and says nothing more."""
        for request in [] if self._lost else requests:
            self._fail(request, Draining())

    def _guarded(self, request: LiveRequest, action: Callable[[], None]) -> None:
        """Runs an action for one request; whatever it raises ends that request and no other."""
        try:
            action()
        except RequestFailed as error:
            self._fail(request, error)
        except BaseException as error:
            self._defect(request, error)

    def _defect(self, request: LiveRequest, error: BaseException) -> None:
        """Logs the exception at hand and fails the request with it; what is none goes on."""
        failure = failure_of(error)
        log.exception(
            "request failed", extra={"request_id": request.trace_id, "tenant": request.tenant}
        )
        self._fail(request, failure)

    def _fail(self, request: LiveRequest, error: RequestFailed) -> None:
        if self._end(request, type(error).__name__):
            request.outlet.failed(request.request_id, error)
            request.outlet.flush([])

    def _end(self, request: LiveRequest, kind: str) -> bool:
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
        self._leave(request.live_sequences)
        if request.task is not None and request.task is not asyncio.current_task():
            request.task.cancel()
        if request.stream is not None:
            self._remember(request, request.stream)
        return True

    def _leave(self, sequence_ids: Sequence[int]) -> None:
        """Takes sequences out of the engine."""
        for sequence_id in sequence_ids:
            self._by_sequence.pop(sequence_id, None)
        if sequence_ids and self._engine is not None:
            self._engine.abort(list(sequence_ids))

    def _remember(self, request: LiveRequest, stream: RequestStream) -> None:
        """Keeps what the choices said, also of one that was cut."""
        if request.opening is None:
            return
        for choice in stream.choices:
            text, dropped = "".join(choice.given), choice.detokenizer.dropped_space
            self._intake.remember(request.opening, choice.tokens, text, drops_space=dropped)


def _too_many(n: int, capacity: int) -> InvalidRequest:
    return InvalidRequest(
        "n", f"n is {n}; this worker takes at most {capacity} sequences, running and waiting."
    )
