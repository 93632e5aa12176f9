"""One request's story, from the job to its last event.

    with pipeline.start(job) as run:                           # route, lease, submit every part
        while (outputs := await run.take()) is not None:       # as they come; empty: nothing yet
            ...
        run.usage                                              # every part is done

    part:  routed -> leased -> submitted -> outputs ... -> done
             ^                     |
             '---------------------'  worker lost, full or leaving before the part's first output

Leaving the context, however it is left, cancels what the workers still do, gives every lease back
and records the one end of the request. Nothing runs in the background: a part moves when the run
takes its events.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType

from msgspec.structs import replace

from gateway.errors import (
    ClientGone,
    Draining,
    GatewayError,
    InternalError,
    NoWorker,
    Overloaded,
    WorkerLost,
    face_of,
)
from gateway.fleet.workers import Fleet, Worker
from gateway.job import Job, Part
from gateway.mailbox import Mailbox
from gateway.request import Done, Event, Failed, Output, Usage
from gateway.routing.router import Router
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Subject, Telemetry

_RETRIABLE = (WorkerLost, Overloaded, Draining)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait and how often to try. keep_alive_s: the longest silence of `take`."""

    attempts: int = 3
    keep_alive_s: float = 15.0


class Pipeline:
    """Starts runs; shared by all requests."""

    def __init__(self, router: Router, fleet: Fleet, telemetry: Telemetry, log: EventLog):
        self.router = router
        self.fleet = fleet
        self.telemetry = telemetry
        self.log = log

    def start(self, job: Job, patience: Patience) -> Run:
        """The request is accepted; it ends when the run's context does."""
        return Run(self, job, patience)


@dataclass(slots=True)
class _Progress:
    """How far a part has come. Only its run writes it."""

    part: Part
    first_choice: int
    tried: set[str] = field(default_factory=set)
    worker: Worker | None = None
    hold: ExitStack | None = None
    num_tokens: int = 0
    has_output: bool = False


class Run:
    """One job on its way through the fleet."""

    def __init__(self, pipeline: Pipeline, job: Job, patience: Patience):
        self.usage = Usage()
        self._pipeline = pipeline
        self._job = job
        self._patience = patience
        self._mailbox: Mailbox[tuple[int, Event]] = Mailbox()
        self._parts = [
            _Progress(part, position * part.ask.decoding.n)
            for position, part in enumerate(job.parts)
        ]
        self._num_open = len(self._parts)
        self._failure: GatewayError | None = None
        subject = Subject(job.tenant.id, job.model, job.route)
        self._record = pipeline.telemetry.begin(subject)

    def __enter__(self) -> Run:
        """Send every part to a worker. Raises NoWorker; then nothing is held."""
        try:
            for position in range(len(self._parts)):
                self._place(position, None)
        except BaseException as error:
            self._finish(error)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing of the request is left behind, and its end is recorded."""
        self._finish(error)

    @property
    def worker(self) -> str:
        """The name of the worker that has the first part."""
        worker = self._parts[0].worker
        return worker.name if worker else ""

    async def take(self) -> list[Output] | None:
        """The next outputs, empty after a silence, None when all parts are done.

        Raises the GatewayError that ends the request; outputs before it are given out first.
        """
        while self._num_open:
            if self._failure is not None:
                raise self._failure
            events = await self._mailbox.take(self._patience.keep_alive_s)
            outputs: list[Output] = []
            for position, event in events:
                self._settle(position, event, outputs)
            if outputs or not events:
                return outputs
        return None

    def _settle(self, position: int, event: Event, outputs: list[Output]) -> None:
        """Take one event of a part."""
        progress = self._parts[position]
        if isinstance(event, Output):
            outputs.append(self._numbered(progress, event))
        elif isinstance(event, Done):
            self.usage += event.usage
            self._num_open -= 1
            self._release(progress, event.usage)
        else:
            self._fail(position, event)

    def _numbered(self, progress: _Progress, output: Output) -> Output:
        """The output with its choice's number in the whole answer."""
        progress.has_output = True
        if output.token_ids:
            progress.num_tokens += output.num_tokens
            self._record.tokens(output.num_tokens)
        if progress.first_choice:
            return replace(output, choice=output.choice + progress.first_choice)
        return output

    def _fail(self, position: int, failed: Failed) -> None:
        """Send the part elsewhere if the client has seen nothing of it, else the request fails."""
        progress = self._parts[position]
        self._release(progress, Usage(completion_tokens=progress.num_tokens))
        try:
            if progress.has_output or not isinstance(failed.error, _RETRIABLE):
                raise failed.error
            self._place(position, failed.error)
        except GatewayError as error:
            self._failure = self._failure or error

    def _place(self, position: int, last: GatewayError | None) -> None:
        """Route, lease and submit a part. Raises `last`, if no worker is left to be tried."""
        progress, pipeline = self._parts[position], self._pipeline
        part = progress.part
        while len(progress.tried) < self._patience.attempts:
            try:
                route = pipeline.router.route(self._job.model, part.key, progress.tried)
            except NoWorker as error:
                raise last or error from None
            worker = route.worker
            progress.tried.add(worker.name)
            progress.worker = worker
            pipeline.telemetry.routes.labels(worker.name, route.reason.value).inc()
            if last is not None:
                pipeline.telemetry.retries.labels(face_of(last).code).inc()
            try:
                self._submit(position, worker)
            except WorkerLost as error:
                last = error
                continue
            self._record.submitted()
            return
        raise last or NoWorker("no attempt is allowed")

    def _submit(self, position: int, worker: Worker) -> None:
        """The worker has the part, and `hold` all that must be given back. Raises WorkerLost."""
        progress = self._parts[position]
        mailbox = self._mailbox
        with ExitStack() as stack:
            stack.enter_context(self._pipeline.fleet.lease(worker))
            stack.enter_context(
                worker.door.submit(progress.part.ask, lambda event: mailbox.put((position, event)))
            )
            progress.hold = stack.pop_all()

    def _release(self, progress: _Progress, usage: Usage) -> None:
        """Give back what the part holds and count what it used."""
        hold, progress.hold = progress.hold, None
        if hold is not None and progress.worker is not None:
            hold.close()
            labels = (self._job.tenant.id, self._job.model, progress.worker.name)
            self._pipeline.telemetry.count_tokens(labels, usage)

    def _finish(self, error: BaseException | None) -> None:
        for progress in self._parts:
            self._release(progress, Usage(completion_tokens=progress.num_tokens))
        status, outcome = self._end(error)
        self._record.end(status, outcome)
        self._pipeline.log.info(
            "request_ended",
            request_id=self._job.request_id,
            tenant=self._job.tenant.id,
            worker=self.worker,
            model=self._job.model,
            route=self._job.route,
            status=status,
            outcome=outcome,
            detail=str(error) if isinstance(error, GatewayError) and status >= 500 else None,
            prompt_tokens=self.usage.prompt_tokens,
            cached_tokens=self.usage.cached_tokens,
            completion_tokens=self._record.num_tokens,
            seconds=self._record.elapsed_s,
        )

    def _end(self, error: BaseException | None) -> tuple[int, str]:
        """The status and the outcome that an end by `error` counts as."""
        if error is None and not self._num_open:
            return 200, "finished"
        if isinstance(error, asyncio.CancelledError):
            error = ClientGone()
        elif not isinstance(error, GatewayError):
            error = InternalError()
        face = face_of(error)
        return face.status, face.code or "error"
