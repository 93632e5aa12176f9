"""A fleet by the clock alone: the gateway's own router before engines of a few lines, no sockets.

    arrive ── route, lease, guess ──▶ queue ── prefill at a rate ──▶ first output ── decode ──▶ end
                                               └ cache events reach every gateway `lag_s` later

Thousands of requests a second, so weights and rules are tried here first. What it leaves out: the
gateways' queue and credit (all that waits waits at an engine), their own time, batching, and
answers that differ in length from what was recorded.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from xxhash import xxh3_128_digest

from gateway.config import RoutingConfig
from gateway.fleet.ledger import CacheEvent, Change, Ledger
from gateway.fleet.view import Expectation
from gateway.fleet.workers import Claim, Fleet, Lease, WorkerInfo, WorkerLoad
from gateway.request import Ask, Deliver, Unit, Usage
from gateway.routing.prefix import TOKEN_BYTES, Chain, PrefixKey
from gateway.routing.route import Route, Want
from gateway.routing.router import Router
from gateway.telemetry.metrics import Telemetry
from loadtest.fake.cache import Change as CacheChange
from loadtest.fake.cache import FakeCache, Mark
from loadtest.fake.engine import Pace
from loadtest.replay import MODEL, Served
from loadtest.traces import Recorded


@dataclass(frozen=True, slots=True)
class Setting:
    """The fleet, and how it is routed to. joins_at_s: when one more worker comes."""

    num_workers: int
    cache_tokens: int
    routing: RoutingConfig = field(default_factory=RoutingConfig)
    num_gateways: int = 1
    pace: Pace = field(default_factory=Pace)
    lag_s: float = 0.05
    joins_at_s: float | None = None
    seed: int = 0


class NoDoor:
    """Nobody is asked: only decisions are made."""

    def submit(self, ask: Ask, deliver: Deliver) -> AbstractContextManager[None]:  # noqa: ARG002
        """Never called."""
        raise AssertionError("nobody is asked")


@dataclass(slots=True)
class _Gateway:
    """One replica, and what it has written down of every worker."""

    fleet: Fleet
    router: Router
    ledgers: dict[str, Ledger] = field(default_factory=dict)


@dataclass(slots=True)
class _Engine:
    """One worker. assigned: expected tokens without an output yet, by gateway."""

    name: str
    cache: FakeCache
    assigned: list[int]
    waiting: deque[_Request] = field(default_factory=deque)
    is_computing: bool = False
    num_running: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(slots=True)
class _Request:
    """One request under way."""

    recorded: Recorded
    want: Want
    gateway: int
    route: Route
    lease: Lease
    expectation: Expectation
    cached_tokens: int = 0


class Simulation:
    """One run. Nothing in it looks at a real clock."""

    def __init__(self, setting: Setting):
        self._setting = setting
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._rng = random.Random(setting.seed)
        self._gateways = [self._gateway() for _ in range(setting.num_gateways)]
        self._engines: dict[str, _Engine] = {}
        self.served: list[Served] = []
        self.ttft_s: list[float] = []
        for _ in range(setting.num_workers):
            self._join()
        self._rebuild()

    def run(self, requests: Sequence[Recorded]) -> list[Served]:
        """Every request from its arrival to its end, in the order of their prefills."""
        for request in requests:
            self._at(request.at_s, lambda request=request: self._arrive(request))  # type: ignore[misc]
        if self._setting.joins_at_s is not None:
            self._at(self._setting.joins_at_s, self._grow)
        while self._events:
            self._now, _, happen = heapq.heappop(self._events)
            happen()
        return self.served

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        """What happens at one moment happens in the order in which it was planned."""
        heapq.heappush(self._events, (when, next(self._numbers), happen))

    # ------------------------------------------------------------------ the fleet

    def _gateway(self) -> _Gateway:
        def clock() -> float:
            return self._now

        fleet = Fleet(clock=clock)
        telemetry = Telemetry(CollectorRegistry(), clock)
        chance = random.Random(self._rng.random())
        return _Gateway(fleet, Router(fleet, self._setting.routing, telemetry, clock, chance))

    def _join(self) -> None:
        name = f"w{len(self._engines)}"
        cache = FakeCache(self._setting.cache_tokens)
        self._engines[name] = _Engine(name, cache, [0] * len(self._gateways))
        info = WorkerInfo(name, "first", MODEL, prefix_cache="radix")
        for gateway in self._gateways:
            worker = gateway.fleet.join(info, NoDoor())
            gateway.ledgers[name] = Ledger(worker.view)

    def _grow(self) -> None:
        self._join()
        self._rebuild()

    def _rebuild(self) -> None:
        async def rebuild() -> None:
            for gateway in self._gateways:
                await gateway.router.rebuild()

        asyncio.run(rebuild())

    # ------------------------------------------------------------------ one request

    def _arrive(self, recorded: Recorded) -> None:
        number = self._rng.randrange(len(self._gateways))
        gateway = self._gateways[number]
        want = Want(MODEL, "default", chain_of(recorded))
        route = gateway.router.route(want)
        lease = gateway.fleet.lease(route.worker, Claim(1, route.expected_tokens))
        lease.__enter__()
        expectation = gateway.router.dispatched(want, route)
        request = _Request(recorded, want, number, route, lease, expectation)
        engine = self._engines[route.worker.name]
        engine.assigned[number] += route.expected_tokens
        engine.waiting.append(request)
        self._tell_load(engine)
        self._compute_next(engine)

    def _compute_next(self, engine: _Engine) -> None:
        pace = self._setting.pace
        if engine.is_computing or not engine.waiting or engine.num_running >= pace.max_running:
            return
        request = engine.waiting.popleft()
        recorded, names = request.recorded, {one.digest for one in request.route.boundaries}
        marks = [
            Mark(digest, piece.num_tokens, digest if digest in names else b"")
            for digest, piece in zip(request.want.chain.digests, recorded.pieces, strict=True)
        ]
        prompt = recorded.prompt_tokens
        request.cached_tokens = min(engine.cache.admit(marks), prompt - 1)
        self._tell_cache(engine)
        self.served.append(Served(recorded.at_s, engine.name, prompt, request.cached_tokens))
        engine.is_computing = True
        engine.num_running += 1
        seconds = (prompt - request.cached_tokens) / pace.prefill_tokens_s
        self._at(self._now + seconds, lambda: self._computed(engine, request))

    def _computed(self, engine: _Engine, request: _Request) -> None:
        engine.is_computing = False
        engine.prompt_tokens += request.recorded.prompt_tokens
        engine.cached_tokens += request.cached_tokens
        self.ttft_s.append(self._now - request.recorded.at_s)
        engine.assigned[request.gateway] -= request.route.expected_tokens
        self._tell_load(engine)
        self._at(self._now + self._setting.lag_s, lambda: self._first_output(request))
        decode_s = request.recorded.output_tokens * self._setting.pace.tick_s
        self._at(self._now + max(decode_s, self._setting.lag_s), lambda: self._end(engine, request))
        self._compute_next(engine)

    def _first_output(self, request: _Request) -> None:
        request.lease.computed()
        request.expectation.computed()

    def _end(self, engine: _Engine, request: _Request) -> None:
        engine.num_running -= 1
        self._tell_load(engine)
        request.lease.__exit__()
        request.expectation.over()
        usage = Usage(request.recorded.prompt_tokens, request.cached_tokens, 1)
        self._gateways[request.gateway].router.finished(request.want, request.route, usage)
        self._compute_next(engine)

    # ------------------------------------------------------------------ what workers tell

    def _tell_cache(self, engine: _Engine) -> None:
        changes = engine.cache.take_changes()
        if changes:
            events, last = [_event(change) for change in changes], changes[-1].sequence
            self._at(self._now + self._setting.lag_s, lambda: self._hear(engine.name, last, events))

    def _hear(self, name: str, sequence: int, events: list[CacheEvent]) -> None:
        for gateway in self._gateways:
            assert gateway.ledgers[name].take(sequence, events), "nothing is lost here"

    def _tell_load(self, engine: _Engine) -> None:
        if len(self._gateways) > 1:
            own = list(engine.assigned)
            load = WorkerLoad(
                running_sequences=engine.num_running,
                waiting_sequences=len(engine.waiting),
                assigned_tokens=sum(own),
                prompt_tokens_total=engine.prompt_tokens,
                cached_tokens_total=engine.cached_tokens,
            )
            when = self._now + self._setting.lag_s
            self._at(when, lambda: self._hear_load(engine.name, load, own))

    def _hear_load(self, name: str, load: WorkerLoad, assigned: Sequence[int]) -> None:
        for gateway, own in zip(self._gateways, assigned, strict=True):
            gateway.fleet.report(name, load, own)


def chain_of(recorded: Recorded) -> Chain:
    """The request's prompt as routing sees it; conversations are keyed by their second piece."""
    digests = tuple(xxh3_128_digest(piece.key.encode()) for piece in recorded.pieces)
    sizes = tuple(piece.num_tokens * TOKEN_BYTES for piece in recorded.pieces)
    static = min(2, len(digests))
    key = PrefixKey(digests[static - 1])
    return Chain(key, digests, tuple(range(1, len(digests) + 1)), sizes, Unit.TOKENS, static)


def pooled_hits(requests: Sequence[Recorded], cache_tokens: int) -> float:
    """The hit rate of one cache of that size that serves every request in order, at once."""
    cache, cached = FakeCache(cache_tokens), 0
    for request in requests:
        marks = [Mark(piece.key.encode(), piece.num_tokens) for piece in request.pieces]
        cached += min(cache.admit(marks), request.prompt_tokens - 1)
    return cached / sum(request.prompt_tokens for request in requests)


def _event(change: CacheChange) -> CacheEvent:
    kind = Change.STORED if change.kind == "stored" else Change.EVICTED
    return CacheEvent(kind, change.name, change.num_tokens)
