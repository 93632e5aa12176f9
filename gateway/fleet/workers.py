"""The live workers by their stable names, how loaded they are, and the leases on them.

Links write here: `expect` when they are made, `join` after the hello, `report` with each step,
`leave` when the stream breaks, `heard` when an attempt ended, well or not.
A lease counts one request in flight; it is a context manager, so that no path forgets to give it
back, and it counts on the very worker object it was taken from: one that came back under the same
name starts at zero.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Protocol

from gateway.config import BreakerConfig
from gateway.fleet.breaker import Breaker
from gateway.fleet.hold import Hold
from gateway.fleet.past import Past
from gateway.fleet.view import View
from gateway.request import Ask, Deliver

_BREAKER = BreakerConfig()


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself. incarnation: new with every process of that name.

    resumes: whether it goes on with what another worker began; a foreign server does not.
    """

    name: str
    incarnation: str
    model: str
    task: str = "generate"
    max_model_len: int = 0
    prefix_cache: str = "off"
    page_size: int = 0
    cache_tokens: int = 0
    max_running_sequences: int = 0
    version: str = ""
    vocab_size: int = 0
    max_waiting_sequences: int = 0
    resumes: bool = True


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """A worker's own account, all gateways' requests included; *_total since its start.

    assigned_tokens: what all gateways expected of the requests that have had no output yet.
    """

    running_sequences: int = 0
    waiting_sequences: int = 0
    uncomputed_tokens: int = 0
    total_pages: int = 0
    used_pages: int = 0
    cached_pages: int = 0
    prompt_tokens_total: int = 0
    cached_tokens_total: int = 0
    generated_tokens_total: int = 0
    evicted_pages_total: int = 0
    preemptions_total: int = 0
    draining: bool = False
    assigned_tokens: int = 0
    steps_total: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request adds to its worker: choices, and prompt tokens that it will compute."""

    num_sequences: int = 1
    expected_tokens: int = 0


class Door(Protocol):
    """How a worker is asked; the link behind it speaks gRPC."""

    def submit(self, ask: Ask, deliver: Deliver) -> AbstractContextManager[None]:
        """Ask; events come to `deliver`. Leaving the context cancels what has not ended.

        Raises WorkerLost when the link is down.
        """
        ...


@dataclass(slots=True, eq=False)
class Worker:
    """A live worker, for as long as one link to it lasts. Only the fleet and leases write it.

    view: what its cache holds, by the gateway's digests. joined_at: seconds of the fleet's clock.
    in_flight: this gateway's requests there; num_sequences: their choices. expected_tokens: what
    of them has still to be computed, as expected when they were sent. assigned_total: all tokens
    that this gateway ever expected it to compute; ties fall by it. others_tokens: what other
    gateways expect of it. hold: while it has no memory for more.
    """

    info: WorkerInfo
    door: Door
    view: View = field(default_factory=View)
    breaker: Breaker = field(default_factory=lambda: Breaker(_BREAKER))
    joined_at: float = 0.0
    load: WorkerLoad = field(default_factory=WorkerLoad)
    in_flight: int = 0
    num_sequences: int = 0
    expected_tokens: int = 0
    assigned_total: int = 0
    others_tokens: int = 0
    hold: Hold = field(default_factory=Hold)

    @property
    def name(self) -> str:
        """Its stable name."""
        return self.info.name

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens that it has still to compute, for this gateway and the others."""
        return self.expected_tokens + self.others_tokens

    def gauges(self) -> dict[str, int]:
        """What the metrics show of it."""
        mine = {"leases": self.in_flight, "queued_tokens": self.queued_tokens}
        mine["held"] = int(self.hold.is_on)
        view = {"view_boundaries": len(self.view), "view_stale": int(self.view.is_stale)}
        return {**mine, **view, **asdict(self.load)}


class Lease:
    """One request's claim on a worker. Counts until it is left."""

    def __init__(self, fleet: Fleet, worker: Worker, claim: Claim):
        self._fleet = fleet
        self.worker = worker
        self._claim = claim
        self._uncomputed = 0

    def __enter__(self) -> Lease:
        """The worker is counted as having the request."""
        worker, claim = self.worker, self._claim
        worker.in_flight += 1
        worker.num_sequences += claim.num_sequences
        worker.expected_tokens += claim.expected_tokens
        worker.assigned_total += claim.expected_tokens
        self._uncomputed = claim.expected_tokens
        self._fleet.leased(worker)
        return self

    def computed(self) -> None:
        """The first output came: nothing of the prompt is left to compute."""
        self.worker.expected_tokens -= self._uncomputed
        self._uncomputed = 0

    def __exit__(self, *_: object) -> None:
        """The worker is free of it."""
        self.computed()
        self.worker.in_flight -= 1
        self.worker.num_sequences -= self._claim.num_sequences
        self._fleet.returned()


class NameTaken(Exception):
    """Another link already stands for this worker name."""


class Fleet:
    """Who is live. `changed` is set whenever a worker comes or goes; its reader clears it.

    version: another number whenever `serving` may answer otherwise than before.
    """

    def __init__(
        self,
        past: Past | None = None,
        clock: Callable[[], float] = time.monotonic,
        new_view: Callable[[], View] = View,
    ) -> None:
        self.version = 0
        self._clock = clock
        self._new_view = new_view
        self._past = past or Past(_BREAKER, 0.0)
        self.changed = asyncio.Event()
        self._workers: dict[str, Worker] = {}
        self._expected: set[str] = set()
        self._in_flight = 0
        self._nudge: Callable[[], None] = _nothing

    def allows(self, worker: Worker) -> bool:
        """Whether the worker's failures, if any, leave room for one more request.

        One without memory has none, unless no other worker of its model has.
        """
        if not worker.breaker.allows(self._clock(), worker.in_flight):
            return False
        return not self.holds(worker) or not self._has_other(worker)

    def holds(self, worker: Worker) -> bool:
        """Whether the worker had no memory for a request a moment ago."""
        return not worker.hold.allows(self._clock())

    def succeeded(self, worker: Worker) -> None:
        """A request of the worker's had its first output."""
        worker.breaker.succeeded()
        worker.hold.succeeded(self._clock())

    def exhausted(self, worker: Worker) -> None:
        """The worker had no memory for a request: it gets fewer for a while, and is not broken."""
        worker.hold.refused(self._clock())

    def failed(self, worker: Worker) -> None:
        """A request of the worker's ended by its fault; that of a former link proves nothing."""
        if self._workers.get(worker.name) is worker:
            worker.breaker.failed(self._clock())

    def may_return(self, model: str) -> bool:
        """Whether the model's last worker left, or began to, so lately that one is waited for."""
        return self._past.may_return(model, self._clock())

    def has_room(self, model: str, takes: Callable[[Worker], bool]) -> bool:
        """Whether it is worth a look to place a request: a worker takes one, or none is to come."""
        workers = self.serving(model).values()
        return any(map(takes, workers)) if workers else not self.may_return(model)

    def on_capacity(self, nudge: Callable[[], None]) -> None:
        """Name who is told, often and cheaply, that a worker may take more than before."""
        self._nudge = nudge

    def expect(self, address: str) -> None:
        """A worker may be there; until it was heard, which models are served is not settled."""
        self._expected.add(address)

    def heard(self, address: str) -> None:
        """What is at the address is known now: a worker that joined, or nobody."""
        self._expected.discard(address)

    def join(self, info: WorkerInfo, door: Door) -> Worker:
        """The worker may be routed to from now on. Raises NameTaken."""
        if info.name in self._workers:
            raise NameTaken(info.name)
        breaker = self._past.breaker_of(info.name, info.incarnation)
        worker = Worker(info, door, self._new_view(), breaker, self._clock())
        self._workers[info.name] = worker
        self._mark(info)
        self.version += 1
        self.changed.set()
        self._nudge()
        return worker

    def leave(self, name: str) -> None:
        """The worker is routed to no more; its leases end with their requests.

        However many it had, a link that broke is one failure.
        """
        worker = self._workers.pop(name)
        worker.breaker.failed(self._clock())
        self._mark(worker.info)
        self.version += 1
        self.changed.set()
        self._nudge()

    def report(self, name: str, load: WorkerLoad, own_tokens: int = 0) -> None:
        """Take over a worker's own account. own_tokens: of its assigned tokens, ours."""
        worker = self._workers[name]
        turned = load.draining != worker.load.draining
        worker.load = load
        worker.others_tokens = max(0, load.assigned_tokens - own_tokens)
        if turned:
            self._mark(worker.info)
            self.version += 1
        self._nudge()

    def _mark(self, info: WorkerInfo) -> None:
        """Whether the model is served after the worker came, turned or left is remembered."""
        if self.serving(info.model):
            self._past.served(info.model)
        else:
            self._past.unserved(info.model, self._clock())

    def workers(self) -> tuple[Worker, ...]:
        """All live workers, in the order of their names."""
        return tuple(self._workers[name] for name in sorted(self._workers))

    def named(self, name: str) -> Worker | None:
        """The live worker of this name."""
        return self._workers.get(name)

    def has(self, name: str) -> bool:
        """Whether a worker of this name is live."""
        return name in self._workers

    def serving(self, model: str) -> dict[str, Worker]:
        """The live workers of a model that are not leaving, by name."""
        return {
            name: worker
            for name, worker in self._workers.items()
            if worker.info.model == model and not worker.load.draining
        }

    def models(self) -> tuple[str, ...]:
        """The models of the live workers, in order."""
        return tuple(sorted({worker.info.model for worker in self._workers.values()}))

    def knows(self, model: str) -> bool:
        """Whether the model is served, or was by a worker that may come back."""
        return model in self.models() or self._past.knows(model, self._clock())

    @property
    def settled(self) -> bool:
        """Whether every expected worker was tried once: an unknown model is really unknown."""
        return not self._expected

    @property
    def ready(self) -> bool:
        """Whether at least one worker is linked."""
        return bool(self._workers)

    @property
    def in_flight(self) -> int:
        """Leases held, on workers that have left as well."""
        return self._in_flight

    def lease(self, worker: Worker, claim: Claim = Claim()) -> Lease:
        """A claim on the worker, counted for as long as its context lasts."""
        return Lease(self, worker, claim)

    def leased(self, worker: Worker) -> None:
        """A lease on the worker began; only leases call this."""
        self._in_flight += 1
        worker.hold.tried(self._clock())

    def returned(self) -> None:
        """A lease ended; only leases call this."""
        self._in_flight -= 1
        self._nudge()

    def _has_other(self, worker: Worker) -> bool:
        """Whether a worker of the same model that isn't held may have a request."""
        now, model = self._clock(), worker.info.model
        return any(
            one.hold.allows(now) and one.breaker.allows(now, one.in_flight)
            for one in self._workers.values()
            if one is not worker and one.info.model == model and not one.load.draining
        )


def _nothing() -> None:
    """Nobody waits for capacity."""
