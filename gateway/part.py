"""One prompt of a request on its way through the fleet.

    waiting ──▶ placed: leased and submitted ──▶ outputs ... ──▶ done
       ▲                    │
       └────────────────────┘ the worker was lost, is full or leaves: another one goes on behind
                              what the client was given already

A part moves when the dispatcher places it or its run takes its events; nothing runs in between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway.doctor.doctor import Visit
from gateway.doctor.finding import Finding
from gateway.doctor.practice import served_by
from gateway.errors import (
    Draining,
    Exhausted,
    GatewayError,
    InternalError,
    WorkerLost,
    face_of,
)
from gateway.fleet.view import Expectation
from gateway.fleet.workers import Claim, Lease, Worker
from gateway.given_out import GivenOut
from gateway.job import Job, Part
from gateway.means import Means
from gateway.queueing.dispatcher import Ticket
from gateway.request import Done, Event, Failed, Output, Usage, Want
from gateway.routing.route import Route
from gateway.search import Search
from gateway.telemetry.lives import Sent
from gateway.telemetry.metrics import RETRIED, Record
from gateway.telemetry.tracing import Trace
from gateway.tenancy.estimate import estimated_prompt_tokens
from gateway.timing import Timing

# What counts against a worker that is still there: a server in the fleet loses a request at a time.
_WORKERS_FAULT = (InternalError, WorkerLost)
# Workers that hand a part back one after the other; more of it is a failure all the same.
_MAX_HAND_BACKS = 32
# What an output token weighs in a tenant's turn, against a prompt token's 1.
_OUTPUT_WEIGHT = 2


@dataclass(slots=True, eq=False)
class PartRun:
    """How far a part has come. deliver: where its events go, failures to place it included.

    finding: why its prompt came from a cache or did not, once that is
    known. sent: the workers that it was given to. trace: of its request, if that is traced.
    """

    means: Means
    job: Job
    part: Part
    record: Record
    deliver: Callable[[Event], None]
    first_choice: int = 0
    trace: Trace | None = None
    route: Route | None = None
    finding: Finding | None = None
    sent: tuple[Sent, ...] = ()
    _visit: Visit | None = None
    _ticket: Ticket = field(init=False)
    _search: Search = field(init=False)
    _given: GivenOut = field(default_factory=GivenOut)
    _attempts: int = 0
    _was_placed: bool = False
    _num_handed_back: int = 0
    _refusal: GatewayError | None = None
    _lease: Lease | None = None
    _expectation: Expectation | None = None
    _hold: ExitStack | None = None
    _tokens_before: int = 0
    _usage: Usage | None = None

    def __post_init__(self) -> None:
        tenant = self.job.tenant
        self._ticket = Ticket(
            model=self.job.model,
            tenant_id=tenant.id,
            bucket=self.part.key,
            request=self,
            weight=tenant.weight,
            rank=tenant.rank,
            max_waiting=None if self.first_choice else tenant.max_queued,
        )
        self._search = Search(self.means, self.part, self.job.model, self._given)

    def start(self) -> None:
        """It is with a worker, or waits for one. Raises GatewayError; then nothing is held."""
        self._visit = self.means.practice.asked(self.part.want, self.part.ask)
        self._enter(again=False)

    # ------------------------------------------------------------------ what the dispatcher asks

    @property
    def narrow(self) -> Worker | None:
        """As Placing.narrow."""
        return self._search.narrow

    def place(self) -> bool:
        """As Placing.place."""
        while True:
            route = None
            try:
                route = self._search.choose(was_placed=self._was_placed)
                if route is None:
                    return False
                self._submit(route)
            except WorkerLost as error:
                if route is None:
                    return self._unplaceable(error)
                self._search.left(route.worker, error)
                continue
            except GatewayError as error:
                return self._unplaceable(error)
            except Exception:
                self.means.log.exception("placing_failed", request_id=self.job.request_id)
                return self._unplaceable(InternalError())
            self.record.submitted()
            return True

    def fail(self, error: GatewayError) -> None:
        """As Placing.fail."""
        self.deliver(Failed(self._search.why_left or error))

    # ------------------------------------------------------------------ what its run tells

    def output(self, output: Output) -> Output:
        """The output with its choice's number in the whole answer."""
        if self._expectation is not None:
            self._begun(self._expectation)
        if output.prompt_tokens:
            self._diagnose(output.prompt_tokens, output.cached_tokens)
        # Ids that a prompt was asked for are no output.
        made = output if self._generates else replace(output, token_ids=b"")
        self._given.take(made)
        num_tokens = made.num_tokens
        if num_tokens:
            self.record.tokens(num_tokens)
            self.means.dispatcher.served(self._ticket, num_tokens * _OUTPUT_WEIGHT)
        if self.first_choice:
            return replace(output, choice=output.choice + self.first_choice)
        return output

    def done(self, done: Done) -> Usage:
        """The worker is through; what the part used in all."""
        self._over(done.timing)
        usage = done.usage
        if not usage.prompt_tokens:  # a foreign server that does not count
            usage = self._estimate()
        else:
            self._diagnose(usage.prompt_tokens, usage.cached_tokens)
            if self.route is not None and not self._tokens_before:
                self.means.router.finished(self.part.want, self.route, usage)
        made_here = self._given.num_tokens - self._tokens_before
        self._release(replace(usage, completion_tokens=made_here))
        self._usage = usage
        return usage

    def bill(self, *, by_client: bool) -> Usage:
        """What the tenant pays for, over all workers: once, however many had the part.

        A part that its client ended early is charged its prompt, by estimate, and what was given
        out; one that failed only where something was given out.
        """
        if self._usage is not None:
            return self._usage
        if not self._was_placed or not (by_client or self._given):
            return Usage()
        return self._estimate()

    def failed(self, failed: Failed) -> Usage | None:
        """Let another worker go on, or raise what ended the part.

        Where only the word that it was done was lost: what the part used.
        """
        if self._hold is not None:
            self._over(failed.timing)
        if self._given.num_finished == self.part.ask.decoding.n:
            self.release()
            self._usage = self._estimate()
            return self._usage
        was_placed = self._hold is not None
        worker = self.route.worker if self.route else None
        self.release()
        error = failed.error
        if was_placed and worker is not None:
            self._blame(worker, error)
        if not was_placed or worker is None or not self._may_go_on(error):
            raise error
        self._search.left(worker, error)
        self.means.telemetry.retries.labels(face_of(error).code).inc()
        if self._given:
            self.means.telemetry.continuations.labels(face_of(error).code).inc()
        self._enter(again=True)
        return None

    def _blame(self, worker: Worker, error: GatewayError) -> None:
        """What the failure says of the worker is remembered of it."""
        if isinstance(error, _WORKERS_FAULT):
            self.means.fleet.failed(worker)
        elif isinstance(error, Exhausted):
            self.means.fleet.exhausted(worker)

    def release(self) -> None:
        """Give back what the part holds, and its place in the queue."""
        self.means.dispatcher.leave(self._ticket)
        made_here = self._given.num_tokens - self._tokens_before
        self._release(Usage(completion_tokens=made_here))

    # ------------------------------------------------------------------ inside

    def _over(self, timing: Timing | None) -> None:
        """The worker's end of it came."""
        over = replace(self.sent[-1], over=self.means.telemetry.clock(), timing=timing)
        self.sent = (*self.sent[:-1], over)

    def _span_id(self, trace: Trace) -> int:
        """Of its time with the next worker. A part behind the first has no span of its own."""
        return trace.span_id if self.first_choice else trace.make_id()

    def _begun(self, expectation: Expectation) -> None:
        """The first output of a worker came: its prompt is computed, and the worker is well."""
        expectation.computed()
        self._expectation = None
        if self._lease is not None:
            self._lease.computed()
            self.means.fleet.succeeded(self._lease.worker)

    def _diagnose(self, prompt_tokens: int, cached_tokens: int) -> None:
        """A worker told what came from its cache; the first word counts."""
        if self.finding is None and self._visit is not None:
            visit, self._visit = self._visit, None
            served = served_by(self.route, prompt_tokens, cached_tokens)
            self.finding = self.means.practice.answered(visit, served)

    def _estimate(self) -> Usage:
        """What the part used where no worker told."""
        prompt_tokens = estimated_prompt_tokens(self.part.ask.prompt)
        prompt_tokens = max(prompt_tokens, self._given.step_tokens)
        return Usage(prompt_tokens, 0, self._given.num_tokens)

    def _enter(self, *, again: bool) -> None:
        """To a worker or into the queue. Raises why neither can be."""
        self._refusal = None
        self.means.dispatcher.enter(self._ticket, again=again)
        if self._refusal is not None:
            raise self._refusal

    def _may_go_on(self, error: GatewayError) -> bool:
        """Whether another worker may have it. A hand-back is no failure and counts as none."""
        if self._given and not self._can_resume:
            return False
        if isinstance(error, Draining) and self._num_handed_back < _MAX_HAND_BACKS:
            self._num_handed_back += 1
            self._attempts -= 1
            return True
        if not isinstance(error, RETRIED) or self._attempts >= self.means.attempts:
            return False
        return self.means.budget.take()

    @property
    def _can_resume(self) -> bool:
        """Whether all that was given out is known by its token ids."""
        return self.route is not None and self.route.worker.info.resumes

    @property
    def _generates(self) -> bool:
        return self.part.ask.want is Want.GENERATION

    def _unplaceable(self, error: GatewayError) -> bool:
        """No worker can have it: who entered it is told, or its run if it waited."""
        if self._ticket.timer is None:
            self._refusal = error
        else:
            self.deliver(Failed(error))
        return True

    def _submit(self, route: Route) -> None:
        """The worker has the part, and `_hold` all that must be given back. Raises WorkerLost."""
        trace = self.trace
        span_id = self._span_id(trace) if trace else 0
        ask = replace(
            self.part.ask,
            traceparent=trace.header(span_id) if trace else "",
            boundaries=route.boundaries,
            expected_tokens=route.expected_tokens,
        )
        ask = self._given.left_of(ask)
        self.route = route
        self._ticket.tokens = route.prompt_tokens
        self._attempts += 1
        self._was_placed = True
        self._tokens_before = self._given.num_tokens
        worker = route.worker
        with ExitStack() as stack:
            claim = Claim(ask.num_sequences, route.expected_tokens)
            self._lease = stack.enter_context(self.means.fleet.lease(worker, claim))
            stack.enter_context(worker.door.submit(ask, self.deliver))
            self._expectation = self.means.router.dispatched(self.part.want, route)
            stack.callback(self._expectation.over)
            self._hold = stack.pop_all()
        self.sent += (Sent(self.means.telemetry.clock(), worker.name, span_id),)

    def _release(self, usage: Usage) -> None:
        hold, self._hold, self._lease = self._hold, None, None
        if hold is not None and self.route is not None:
            hold.close()
            labels = (self.job.tenant.id, self.job.model, self.route.worker.name)
            self.means.telemetry.count_tokens(labels, usage)
