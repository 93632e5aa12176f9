"""From requests to workers: at once where a worker has credit, else in order as credit comes.

    enter ── a worker has credit, nobody waits ────────────────────────────────────▶ place
      ├──── else into the fair queue ── nudge: a lease ended, a worker reported ───▶ place
      │                             └── no credit within max_wait_s ───────────────▶ fail
      └──── again, since its worker was lost: beside the queue, before all in it

One that can't be placed, for it wants workers of its own, holds up a few others of its tenant at
most: so many are looked at. One that finds some room, too little for all its choices, is passed by
a few; from then on it goes before the others, and a worker is kept for it until it is placed.

Routing happens when a request is placed, never before: what waits follows the caches as they are
then. Nothing here awaits; a lone request is on its way before `enter` returns.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gateway.config import QueueConfig
from gateway.errors import GatewayError, Overloaded, QueueFull
from gateway.fleet.workers import Worker
from gateway.queueing.fair import FairQueue, Patience

Clock = Callable[[], float]
# Whether a look at what waits for a model is worth its cost.
HasRoom = Callable[[str], bool]
# Looks happen when something changes; this is for what changes without a word.
_LOOK_S = 1.0
# So many pass one that finds some room and too little, as many as are looked at behind another.
_MAX_PASSED = 8


class Placing(Protocol):
    """What the dispatcher asks of a request. Nothing here may raise."""

    def place(self) -> bool:
        """Send it to a worker. False: none that may have it has credit now.

        Where no worker can ever have it, it ends by itself, and that counts as placed.
        """
        ...

    @property
    def narrow(self) -> Worker | None:
        """A worker that had room when it was not placed, but too little for all its choices."""
        ...

    def fail(self, error: GatewayError) -> None:
        """It waited for nothing."""
        ...


@dataclass(slots=True, eq=False)
class Ticket:
    """One request, or one part of it, on its way to a worker. Only the dispatcher writes it.

    max_waiting: with so many others of its tenant it may not wait; None: it may, uncounted.
    """

    model: str
    tenant_id: str
    bucket: bytes
    request: Placing
    weight: float = 1.0
    rank: int = 1
    max_waiting: int | None = None
    tokens: int = 0
    since: float = 0.0
    ready_at: float = 0.0
    num_passed: int = 0
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


# Tickets in the order in which they came.
_Line = dict[Ticket, None]


class Dispatcher:
    """Lives on one event loop; one fair queue per model.

    _again: what lost its worker; _overdue: of all that wait, what others passed too often. Both by
    model. _kept: while a look lasts, workers for those alone that have been looked at.
    """

    def __init__(self, config: QueueConfig, clock: Clock, has_room: HasRoom):
        self._config = config
        self._has_room = has_room
        self._clock = clock
        self._queues: dict[str, FairQueue[Ticket]] = {}
        self._again: dict[str, _Line] = {}
        self._overdue: dict[str, _Line] = {}
        self._kept: set[Worker] = set()
        self._limited: dict[str, int] = {}
        self._patience = Patience(config.ageing_s, config.bypass_s)
        self._num_queued = 0
        self._nudged = False

    @property
    def num_waiting(self) -> int:
        """Requests that wait, of all tenants."""
        return self._num_queued + sum(map(len, self._again.values()))

    async def watch(self) -> None:
        """Look once in a while, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.nudge()

    def waiting(self) -> Counter[tuple[str, str]]:
        """Requests that wait, by tenant and model."""
        counts = Counter(
            {
                (tenant_id, model): count
                for model, queue in self._queues.items()
                for tenant_id, count in queue.counts()
            }
        )
        for model, line in self._again.items():
            for ticket in line:
                counts[ticket.tenant_id, model] += 1
        return counts

    def keeps(self, worker: Worker) -> bool:
        """Whether the worker is kept for a request that goes before the one that asks."""
        return worker in self._kept

    def enter(self, ticket: Ticket, *, again: bool = False) -> None:
        """Place the request now or when its turn comes. Raises QueueFull, Overloaded.

        again: it was placed before and lost its worker; it goes first and is refused by no limit.
        """
        overflow = None if again else self._overflow(ticket)
        hold = 0.0 if again or overflow else self._config.hold_s
        ticket.since = self._clock()
        ticket.ready_at = ticket.since + hold
        is_next = ticket.model not in self._again and (again or not len(self._queue(ticket.model)))
        if is_next and not hold and ticket.request.place():
            self._charge(ticket)
            return
        self._put(ticket, again=again)
        if overflow is not None:
            self._place_or_refuse(ticket, overflow)
            return
        loop = asyncio.get_running_loop()
        ticket.timer = loop.call_later(self._config.max_wait_s, self._give_up, ticket)
        if hold:
            loop.call_later(hold, self.nudge)
        elif not is_next:
            self.nudge()

    def leave(self, ticket: Ticket) -> None:
        """The request waits no more; one that was placed already is no matter."""
        if self._remove(ticket):
            self.nudge()

    def served(self, ticket: Ticket, tokens: int) -> None:
        """Output tokens of a placed request came: its tenant had them."""
        self._queue(ticket.model).charge(ticket.tenant_id, ticket.weight, tokens)

    def nudge(self) -> None:
        """Credit may have come: look once, soon, however many say so."""
        if not self._nudged and self.num_waiting:
            self._nudged = True
            asyncio.get_running_loop().call_soon(self._pump)

    # ------------------------------------------------------------------ a look at what waits

    def _pump(self) -> None:
        self._nudged = False
        for model in list(self._queues):
            self._look(model)

    def _look(self, model: str) -> None:
        """Whoever waits for the model and can be placed is, in order."""
        passed: list[Ticket] = []
        first = [*self._again.get(model, ()), *self._overdue.get(model, ())]
        for ticket in dict.fromkeys(first):
            if not self._has_room(model):
                break
            self._try(ticket, passed)
        queue = self._queue(model)
        while len(queue) and self._has_room(model) and self._place_next(queue, passed):
            pass
        self._kept.clear()

    def _place_next(self, queue: FairQueue[Ticket], passed: list[Ticket]) -> bool:
        """Place one request of the first tenant that a worker has credit for."""
        now, before = self._clock(), list(passed)
        return any(
            ticket.ready_at <= now and ticket.num_passed < _MAX_PASSED and self._try(ticket, before)
            for ticket in queue.candidates(now)
        )

    def _try(self, ticket: Ticket, passed: list[Ticket]) -> bool:
        """Whether a waiting request was placed, and so before `passed`; else it may be of them."""
        if ticket.request.place():
            self._remove(ticket)
            self._charge(ticket)
            for other in passed:
                self._pass(other)
            return True
        if ticket.request.narrow is not None:
            passed.append(ticket)
            self._keep_for(ticket)
        return False

    def _pass(self, ticket: Ticket) -> None:
        """One more went before the request, though there was room for some of it."""
        ticket.num_passed += 1
        if ticket.num_passed == _MAX_PASSED:
            self._overdue.setdefault(ticket.model, {})[ticket] = None
        self._keep_for(ticket)

    def _keep_for(self, ticket: Ticket) -> None:
        """Nobody behind an overdue request takes the room that it gathers."""
        if ticket.num_passed >= _MAX_PASSED and ticket.request.narrow is not None:
            self._kept.add(ticket.request.narrow)

    # ------------------------------------------------------------------ who waits

    def _put(self, ticket: Ticket, *, again: bool) -> None:
        ticket.num_passed = 0
        queue = self._queue(ticket.model)
        if again:
            self._again.setdefault(ticket.model, {})[ticket] = None
            return
        queue.put(ticket)
        self._num_queued += 1
        if ticket.max_waiting is not None:
            self._limited[ticket.tenant_id] = self._limited.get(ticket.tenant_id, 0) + 1

    def _remove(self, ticket: Ticket) -> bool:
        """Whether it waited; it does no more."""
        if not _take_out(self._again, ticket):
            if not self._queue(ticket.model).remove(ticket):
                return False
            self._num_queued -= 1
            self._uncount(ticket)
        _take_out(self._overdue, ticket)
        if ticket.timer is not None:
            ticket.timer.cancel()
            ticket.timer = None
        return True

    def _uncount(self, ticket: Ticket) -> None:
        if ticket.max_waiting is None:
            return
        self._limited[ticket.tenant_id] -= 1
        if not self._limited[ticket.tenant_id]:
            del self._limited[ticket.tenant_id]

    def _charge(self, ticket: Ticket) -> None:
        self._queue(ticket.model).charge(ticket.tenant_id, ticket.weight, ticket.tokens)

    def _give_up(self, ticket: Ticket) -> None:
        if self._remove(ticket):
            ticket.request.fail(Overloaded("no worker had credit in time"))
            self.nudge()

    def _overflow(self, ticket: Ticket) -> GatewayError | None:
        """Why the request may not wait, if it may not."""
        if ticket.max_waiting is not None:
            waiting = self._limited.get(ticket.tenant_id, 0)
            if waiting >= ticket.max_waiting:
                return QueueFull(f"{waiting} of your requests wait already; at most so many may.")
        if self._num_queued >= self._config.max_waiting:
            return Overloaded(f"{self._num_queued} requests wait")
        return None

    def _place_or_refuse(self, ticket: Ticket, overflow: GatewayError) -> None:
        """The request has its turn at once, behind those before it. Raises overflow."""
        self._look(ticket.model)
        if self._remove(ticket):
            raise overflow

    def _queue(self, model: str) -> FairQueue[Ticket]:
        queue = self._queues.get(model)
        if queue is None:
            queue = self._queues[model] = FairQueue(self._patience)
        return queue


def _take_out(lines: dict[str, _Line], ticket: Ticket) -> bool:
    """Whether the ticket stood in its model's line; it does no more."""
    line = lines.get(ticket.model, {})
    if ticket not in line:
        return False
    del line[ticket]
    if not line:
        del lines[ticket.model]
    return True
