"""Which worker may have a part now, and which ones it was with already."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from gateway.errors import Exhausted, GatewayError, NoWorker
from gateway.fleet.workers import Worker
from gateway.given_out import GivenOut
from gateway.job import Part
from gateway.means import Means
from gateway.request import ProgramPrompt, Want
from gateway.routing.route import NoCredit, Route


@dataclass(slots=True, eq=False)
class Search:
    """One part's. given: what its client has, so where it may go on.

    narrow: as Placing.narrow. why_left: what ended its time with the last worker.
    """

    means: Means
    part: Part
    model: str
    given: GivenOut
    narrow: Worker | None = None
    why_left: GatewayError | None = None
    _avoid: set[Worker] = field(default_factory=set)

    def left(self, worker: Worker, error: GatewayError) -> None:
        """The part was with the worker, or nearly, and is to go on elsewhere."""
        self.why_left = error
        self._avoid.add(worker)

    def choose(self, *, was_placed: bool) -> Route | None:
        """Where to; None: no worker has credit now, or one that may go on is still to come.

        was_placed: the part had a worker once. Raises NoWorker, or the error for which the last
        worker was left.
        """
        means = self.means
        self.narrow, before = None, self.narrow
        try:
            return means.router.route(self.part.want, self._avoid, self._is_eligible)
        except NoCredit:
            if self.part.ask.num_sequences > 1:
                self.narrow = self._with_some_room(before)
            return None
        except NoWorker as error:
            if self._avoid:
                # They are full, or leave. Where nobody else is left, their turn comes again.
                self._avoid.clear()
                return None
            if was_placed or means.fleet.may_return(self.model):
                return None
            raise self.why_left or error from None

    def _is_eligible(self, worker: Worker) -> bool:
        """Whether the worker may have it now: credit, and what was given out can go on there.

        For what had no memory elsewhere it waits until the worker may have some.
        """
        if isinstance(self.why_left, Exhausted) and self.means.fleet.holds(worker):
            return False
        return self._suits(worker) and self.means.takes(worker, self.part.ask.num_sequences)

    def _suits(self, worker: Worker) -> bool:
        """Whether it has the task; what was given out can go on, and the prompt be told of, there.

        A server that goes on with nothing was made to generate, and tells neither ids nor values.
        """
        ask, info = self.part.ask, worker.info
        tells = ask.decoding.score_prompt or ask.decoding.echo or ask.want is not Want.GENERATION
        tells = tells or isinstance(ask.prompt, ProgramPrompt)
        return ask.task in (None, info.task) and (info.resumes or not (self.given or tells))

    def _with_some_room(self, before: Worker | None) -> Worker | None:
        """A worker that may have it and takes some choices; the same as before while that lives."""
        means, want = self.means, self.part.want
        if before is not None and means.fleet.allows(before):
            with suppress(NoCredit, NoWorker):
                return means.router.route(want, self._avoid, lambda one: one is before).worker
        with suppress(NoCredit, NoWorker):
            return means.router.route(want, self._avoid, self._takes_some).worker
        return None

    def _takes_some(self, worker: Worker) -> bool:
        return self._suits(worker) and self.means.takes(worker)
