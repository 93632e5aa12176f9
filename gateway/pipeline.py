"""One request's story, from the job to its last event.

    with pipeline.start(job) as run:                           # every part placed, or in the queue
        while (outputs := await run.take()) is not None:       # as they come; empty: nothing yet
            ...
        run.usage                                              # every part is done

Leaving the context, however it is left, cancels what the workers still do, gives every lease back
and records the one end of the request. Nothing runs in the background: a part moves when a worker
gets credit or the run takes its events (see `part`).
"""

from __future__ import annotations

import asyncio
from functools import partial
from types import TracebackType

from gateway.doctor.finding import Finding
from gateway.errors import ClientGone, GatewayError, InternalError, face_of
from gateway.job import Job
from gateway.mailbox import Mailbox
from gateway.means import Means
from gateway.part import PartRun
from gateway.request import Done, Event, Failed, Output, Usage
from gateway.telemetry.lives import MAX_DEPTH, Beginning, Life
from gateway.telemetry.metrics import Subject

# Ends that are nobody's failure here: hung up, or took longer than it may.
_BY_CLIENT = (499, 504)


class Pipeline:
    """Starts runs; shared by all requests. keep_alive_s: the longest silence of `take`."""

    def __init__(self, means: Means, keep_alive_s: float):
        self.means = means
        self.keep_alive_s = keep_alive_s

    def start(self, job: Job, traceparent: str | None = None) -> Run:
        """The request is accepted; it ends when the run's context does. traceparent: W3C's."""
        self.means.budget.accepted()
        return Run(self, job, traceparent)


class Run:
    """One job on its way through the fleet.

    usage: of the parts that are done. bill: once the run is over, what the tenant pays for.
    finding: why a prompt came from a cache or did not: of the part whose output came first.
    """

    def __init__(self, pipeline: Pipeline, job: Job, traceparent: str | None = None):
        self.usage = self.bill = Usage()
        self.finding: Finding | None = None
        self._means = pipeline.means
        self._trace = self._means.traces.begin(traceparent)
        self._keep_alive_s = pipeline.keep_alive_s
        self._job = job
        self._mailbox: Mailbox[tuple[int, Event]] = Mailbox()
        subject = Subject(job.tenant.id, job.model, job.route)
        self._record = self._means.telemetry.begin(subject)
        self._parts = [
            PartRun(
                means=self._means,
                job=job,
                part=part,
                record=self._record,
                deliver=partial(self._deliver, position),
                first_choice=position * part.ask.decoding.n,
                trace=self._trace,
            )
            for position, part in enumerate(job.parts)
        ]
        self._num_open = len(self._parts)
        self._failure: GatewayError | None = None

    def __enter__(self) -> Run:
        """Every part is with a worker or waits for one. Raises GatewayError; nothing is held."""
        try:
            for part in self._parts:
                part.start()
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
        """The name of the worker that has the first part, or had it last."""
        route = self._parts[0].route
        return route.worker.name if route else ""

    @property
    def explanation(self) -> str:
        """Why the first part went where it went."""
        route = self._parts[0].route
        return route.explain() if route else ""

    async def take(self) -> list[Output] | None:
        """The next outputs, empty after a silence, None when all parts are done.

        Raises the GatewayError that ends the request; outputs before it are given out first.
        """
        while self._num_open:
            if self._failure is not None:
                raise self._failure
            events = await self._mailbox.take(self._keep_alive_s)
            outputs: list[Output] = []
            for position, event in events:
                self._settle(self._parts[position], event, outputs)
            if outputs or not events:
                return outputs
        return None

    def _deliver(self, position: int, event: Event) -> None:
        self._mailbox.put((position, event))

    def _settle(self, part: PartRun, event: Event, outputs: list[Output]) -> None:
        """Take one event of a part."""
        if isinstance(event, Output):
            outputs.append(part.output(event))
        elif isinstance(event, Done):
            self.usage += part.done(event)
            self._num_open -= 1
        else:
            self._fail(part, event)
        self.finding = self.finding or part.finding

    def _fail(self, part: PartRun, failed: Failed) -> None:
        """Another worker goes on with the part, else the request fails."""
        try:
            usage = part.failed(failed)
        except GatewayError as error:
            self._failure = self._failure or error
            return
        if usage is not None:
            self.usage += usage
            self._num_open -= 1

    def _finish(self, error: BaseException | None) -> None:
        for part in self._parts:
            part.release()
        status, outcome = self._end(error)
        by_client = status in _BY_CLIENT
        for part in self._parts:
            self.bill += part.bill(by_client=by_client)
        self._record.end(status, outcome)
        life = self._life(status, outcome)
        self._means.telemetry.lives.add(life)
        if self._trace is not None:
            self._means.traces.tell(life, self._trace)
        self._means.log.info(
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
            cache_reason=self.finding.reason.value if self.finding else None,
            seconds=self._record.elapsed_s,
            trace_id=self._trace.name if self._trace else None,
            **_worker_times(life),
        )

    def _life(self, status: int, outcome: str) -> Life:
        """What is remembered of the request once it is over."""
        job, record, first = self._job, self._record, self._parts[0]
        chain = first.part.want.chain
        return Life(
            request_id=job.request_id,
            tenant=job.tenant.id,
            model=job.model,
            route=job.route,
            began=record.began,
            ended=record.began + record.elapsed_s,
            status=status,
            outcome=outcome,
            sent=first.sent,
            first_output=record.first_token,
            prompt_tokens=self.usage.prompt_tokens,
            cached_tokens=self.usage.cached_tokens,
            completion_tokens=record.num_tokens,
            explanation=self.explanation,
            finding=self.finding,
            num_parts=len(self._parts),
            beginning=Beginning(chain.digests[:MAX_DEPTH], chain.roles[:MAX_DEPTH]),
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


def _worker_times(life: Life) -> dict[str, float | None]:
    """What the request's time went to in its last worker, if that told."""
    timing = life.sent[-1].timing if life.sent else None
    if timing is None:
        return {}
    told = {f"worker_{phase.name}_seconds": phase.seconds for phase in timing.phases()}
    return {**told, "worker_preemptions": timing.num_preemptions or None}
