"""Between the links and the engine, on the asyncio side: every request's one life and one end.

    submit -> entry: prepared, to the engine -> reports -> RequestStream -> outlet

Every submission ends with exactly one `done` or `failed`, whatever happens to it, as long as its
link lives. A worker that leaves hands back what it can't finish (`Draining`), begun or not. One
whose engine died says nothing more: its links close, so that gateways see a lost worker and go on
elsewhere. Only a step that can't be computed fails its requests (`InternalError`): what breaks
one worker must not go on to the next, but for want of memory (`Exhausted`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from worker.engine import Engine, StepReport
from worker.entry import Entry
from worker.errors import Cancelled, Draining, InternalError, RequestFailed
from worker.intake import Intake
from worker.live import LiveRequest, Outlet, ServiceLimits
from worker.progress import Progress, Valued
from worker.roster import Roster
from worker.submission import Submission
from worker.text.tokenizer import Tokenizer
from worker.timing import Timer


class Service:
    """Lives on one event loop. The engine is attached once it is built. clock: as the engine's."""

    def __init__(
        self,
        intake: Intake,
        tokenizer: Tokenizer,
        limits: ServiceLimits,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._roster = Roster(intake, clock)
        self._entry = Entry(self._roster, intake, tokenizer, limits)
        self._outlets: set[Outlet] = set()
        self._lost = False
        self.draining = False
        self.tallies = self._roster.tallies

    def attach(self, engine: Engine) -> None:
        """Names the engine. `on_report` takes its reports, on the event loop."""
        self._roster.engine = engine

    @property
    def num_live(self) -> int:
        """Requests accepted and not ended."""
        return len(self._roster)

    @property
    def num_sequences(self) -> int:
        """Sequences in the engine."""
        return self._roster.num_sequences

    @property
    def assigned_tokens(self) -> int:
        """Prompt tokens expected of the requests that have had no output yet."""
        return self._roster.assigned.total()

    def assigned_to(self, outlet: Outlet) -> int:
        """Of them, those that came over one link."""
        return self._roster.assigned[outlet]

    # ------------------------------------------------------------------ how it leaves

    async def idle(self) -> None:
        """Returns when no request is live, or the engine is gone and none will end."""
        while len(self._roster) and not self._lost:
            await self._roster.ends()

    def leave(self) -> None:
        """Takes nothing new, and hands back what waits: it can begin elsewhere at once."""
        self.draining = True
        self._hand_back(one for one in self._roster if not one.begun)

    def hand_back(self) -> None:
        """Hands back everything that's left: other workers go on where this one stood."""
        self.draining = True
        self._hand_back(self._roster)

    def abandon(self) -> None:
        """Takes nothing new; nothing that's live ends but with its link: the engine is no more."""
        self.draining = self._lost = True
        self._roster.wake()

    def _hand_back(self, requests: Iterable[LiveRequest]) -> None:
        """Fails them as a worker that leaves, unless it is lost and says nothing more."""
        for request in [] if self._lost else requests:
            self._roster.fail(request, Draining())

    # ------------------------------------------------------------------ what links tell

    def connect(self, outlet: Outlet) -> None:
        """A link is up."""
        self._outlets.add(outlet)

    def disconnect(self, outlet: Outlet) -> None:
        """A link is gone: what it carried is aborted, and nobody is told."""
        self._outlets.discard(outlet)
        for request in self._roster:
            if request.outlet is outlet:
                self._roster.end(request, "disconnected")
        del self._roster.assigned[outlet]

    def submit(self, outlet: Outlet, submission: Submission) -> None:
        """Accepts a request; it ends through the outlet."""
        request = LiveRequest(
            outlet,
            submission.request_id,
            submission.trace_id,
            submission.tenant,
            Timer(self._clock()),
        )
        if not self._roster.add(request, submission.expected_tokens):
            return
        if self.draining:
            self._roster.fail(request, Draining())
        else:
            self._entry.start(request, submission)

    def cancel(self, outlet: Outlet, request_id: int) -> None:
        """Takes a request back; one that has ended already stays ended."""
        request = self._roster.find(outlet, request_id)
        if request is not None:
            self._roster.fail(request, Cancelled())

    # ------------------------------------------------------------------ what the engine tells

    def on_report(self, report: StepReport) -> None:
        """Spreads one engine step over the requests, then lets every link send once."""
        roster = self._roster
        began, ended = report.span(self._clock)
        for sequence_id in report.preempted:
            request = roster.of_sequence(sequence_id)
            if request is not None:
                request.timer.preempted()
        for sequence_id, cached_tokens in report.first_cached.items():
            request = roster.of_sequence(sequence_id)
            if request is not None:
                request.admitted(sequence_id, cached_tokens, began)
        for progress in report.progress:
            self._progressed(progress, ended)
        for valued in report.valued:
            request = roster.of_sequence(valued.sequence_id)
            if request is not None:
                request.timer.token(ended)
                roster.guarded(request, partial(self._valued, request, valued))
        for sequence_id, error in report.refused.items():
            self._refused(sequence_id, error)
        for sequence_id in report.failed:
            request = roster.of_sequence(sequence_id)
            if request is not None:
                roster.fail(request, InternalError())
        for outlet in list(self._outlets):
            outlet.flush(report.events)

    def _progressed(self, progress: Progress, at: float) -> None:
        request = self._roster.of_sequence(progress.sequence_id)
        if request is not None and progress.tokens:
            request.timer.token(at)
        if request is not None and request.desk is not None:
            if progress.finish is not None:
                self._roster.left(progress.sequence_id)
            request.desk.came(progress.sequence_id, progress)
        elif request is not None:
            self._roster.guarded(request, partial(self._advance, request, progress))

    def _refused(self, sequence_id: int, error: RequestFailed) -> None:
        request = self._roster.of_sequence(sequence_id)
        if request is not None and request.desk is not None:
            self._roster.left(sequence_id)
            request.desk.came(sequence_id, error)
        elif request is not None:
            self._roster.fail(request, error)

    def _advance(self, request: LiveRequest, progress: Progress) -> None:
        stream, roster = request.stream, self._roster
        assert stream is not None
        output = stream.push(progress)
        if output is None:
            return
        roster.give(request, output)
        if output.finish is None:
            return
        if progress.finish is None:
            roster.take_out([progress.sequence_id])
        else:
            roster.left(progress.sequence_id)
        if stream.finished:
            roster.done(request, stream.usage)

    def _valued(self, request: LiveRequest, valued: Valued) -> None:
        stream, roster = request.stream, self._roster
        assert stream is not None
        output = stream.valued(valued)
        roster.left(valued.sequence_id)
        if output is not None:
            roster.give(request, output)
        if stream.finished:
            roster.done(request, stream.usage)
