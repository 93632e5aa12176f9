"""From requests to workers: at once where a worker has credit, else in order as credit comes.

    enter ── a worker has credit, nobody waits ────────────────────────────────────▶ place
      ├──── else into the fair queue ── nudge: a lease ended, a worker reported ───▶ place
      │                             └── no credit within max_wait_s ───────────────▶ fail
      └──── again, since its worker was lost: beside the queue, before all in it

One that can't be placed, for it wants workers of its own, holds up a few others of its tenant at
most: so many are looked at.

Routing happens when a request is placed, never before: what waits follows the caches as they are
then. Nothing here awaits; a lone request is on its way before `enter` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gateway.config import QueueConfig
from gateway.errors import GatewayError, Overloaded, QueueFull
from gateway.queueing.fair import FairQueue, Patience

Clock = Callable[[], float]
# Whether a look at what waits for a model is worth its cost.
HasRoom = Callable[[str], bool]
# Looks happen when something changes; this is for what changes without a word.
_LOOK_S = 1.0


class Placing(Protocol):
    """What the dispatcher asks of a request. Nothing here may raise."""

    def place(self) -> bool:
        """Send it to a worker. False: none that may have it has credit now.

        Where no worker can ever have it, it ends by itself, and that counts as placed.
        """
        ...

    def fail(self, error: GatewayError) -> None:
        """It waited for nothing."""
        ...


@dataclass(slots=True, eq=False)
class Ticket:
    """One request, or one part of it, on its way to a worker. Only the dispatcher writes it."""

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
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


class Dispatcher:
    """Lives on one event loop; one fair queue per model."""

    def __init__(self, config: QueueConfig, clock: Clock, has_room: HasRoom):
        self._config = config
        self._has_room = has_room
        self._again: list[Ticket] = []
        self._clock = clock
        self._queues: dict[str, FairQueue[Ticket]] = {}
        self._patience = Patience(config.ageing_s, config.bypass_s)
        self._num_waiting = 0
        self._nudged = False

    @property
    def num_waiting(self) -> int:
        """Requests that wait, of all tenants."""
        return self._num_waiting + len(self._again)

    async def watch(self) -> None:
        """Look once in a while, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.nudge()

    def waiting_by_tenant(self) -> dict[str, int]:
        """Requests that wait, by tenant."""
        counts: dict[str, int] = {}
        for queue in self._queues.values():
            for tenant_id, count in queue.counts():
                counts[tenant_id] = counts.get(tenant_id, 0) + count
        for ticket in self._again:
            counts[ticket.tenant_id] = counts.get(ticket.tenant_id, 0) + 1
        return counts

    def enter(self, ticket: Ticket, *, again: bool = False) -> None:
        """Place the request now or when its turn comes. Raises QueueFull, Overloaded.

        again: it was placed before and lost its worker; it goes first and is refused by no limit.
        """
        queue = self._queue(ticket.model)
        hold = 0.0 if again else self._config.hold_s
        ticket.since = self._clock()
        ticket.ready_at = ticket.since + hold
        if not hold and (again or not len(queue)) and ticket.request.place():
            self._charge(ticket)
            return
        if again:
            self._again.append(ticket)
        else:
            self._refuse_overflow(queue, ticket)
            queue.put(ticket)
            self._num_waiting += 1
        loop = asyncio.get_running_loop()
        ticket.timer = loop.call_later(self._config.max_wait_s, self._give_up, ticket)
        if hold:
            loop.call_later(hold, self.nudge)
        elif len(queue) > 1:
            self.nudge()

    def leave(self, ticket: Ticket) -> None:
        """The request waits no more; one that was placed already is no matter."""
        self._remove(ticket)

    def served(self, ticket: Ticket, tokens: int) -> None:
        """Output tokens of a placed request came: its tenant had them."""
        self._queue(ticket.model).charge(ticket.tenant_id, ticket.weight, tokens)

    def nudge(self) -> None:
        """Credit may have come: look once, soon, however many say so."""
        if self.num_waiting and not self._nudged:
            self._nudged = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._nudged = False
        for ticket in list(self._again):
            self._try(ticket)
        for model, queue in self._queues.items():
            while len(queue) and self._has_room(model) and self._place_next(queue):
                pass

    def _place_next(self, queue: FairQueue[Ticket]) -> bool:
        """Place one request of the first tenant that a worker has credit for."""
        now = self._clock()
        return any(ticket.ready_at <= now and self._try(ticket) for ticket in queue.candidates(now))

    def _try(self, ticket: Ticket) -> bool:
        """Whether a waiting request was placed."""
        if not ticket.request.place():
            return False
        self._remove(ticket)
        self._charge(ticket)
        return True

    def _remove(self, ticket: Ticket) -> bool:
        """Whether it waited; it does no more."""
        if ticket in self._again:
            self._again.remove(ticket)
        elif self._queue(ticket.model).remove(ticket):
            self._num_waiting -= 1
        else:
            return False
        if ticket.timer is not None:
            ticket.timer.cancel()
            ticket.timer = None
        return True

    def _charge(self, ticket: Ticket) -> None:
        self._queue(ticket.model).charge(ticket.tenant_id, ticket.weight, ticket.tokens)

    def _give_up(self, ticket: Ticket) -> None:
        if self._remove(ticket):
            ticket.request.fail(Overloaded("no worker had credit in time"))

    def _refuse_overflow(self, queue: FairQueue[Ticket], ticket: Ticket) -> None:
        if ticket.max_waiting is not None:
            waiting = queue.num_waiting(ticket.tenant_id)
            if waiting >= ticket.max_waiting:
                raise QueueFull(f"{waiting} of your requests wait already; at most so many may.")
        if self._num_waiting >= self._config.max_waiting:
            raise Overloaded(f"{self._num_waiting} requests wait")

    def _queue(self, model: str) -> FairQueue[Ticket]:
        queue = self._queues.get(model)
        if queue is None:
            queue = self._queues[model] = FairQueue(self._patience)
        return queue
