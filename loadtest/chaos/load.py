"""Clients that never stop asking, each a tenant's; every end of a request is kept as a sample."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import httpx

from loadtest.chaos.answers import Told, ask_once
from loadtest.chaos.asks import Ask
from loadtest.chaos.fleet import TENANTS, Fleet, Tenant
from loadtest.chaos.verdict import Circumstances, Outcome, Span, Verdict, judge
from loadtest.errors import FleetFailed

_HANG_UPS = 0.12
_THINK_S = 0.3
_LONGEST_PAUSE_S = 2.0
# Of a stream, after which event at most a client has enough; of a plain answer, tenths of a second.
_ENOUGH = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """A request that ended. span: in which time, and at which gateway."""

    span: Span
    tenant: str
    kind: str
    verdict: Verdict


@dataclass(slots=True)
class Record:
    """All that happened, by time since the run began. Written by the load and by the faults."""

    began: float
    samples: list[Sample] = field(default_factory=list)
    faults: list[Span] = field(default_factory=list)
    outages: list[Span] = field(default_factory=list)

    def now(self) -> float:
        """Seconds since the run began."""
        return asyncio.get_running_loop().time() - self.began

    @contextmanager
    def lasting(self, spans: list[Span], what: str) -> Iterator[None]:
        """Within it, the span has begun and has no end yet."""
        spans.append(Span(what, self.now()))
        place = len(spans) - 1
        try:
            yield
        finally:
            spans[place] = replace(spans[place], ended=self.now())

    @contextmanager
    def outage(self, gateway: str) -> Iterator[None]:
        """Within it, the gateway takes no requests."""
        with self.lasting(self.outages, gateway):
            yield

    def count(self, *outcomes: Outcome) -> int:
        """How many requests ended so."""
        return sum(one.verdict.outcome in outcomes for one in self.samples)


@dataclass(slots=True)
class Load:
    """What clients share. expected: an answer's body by the ask's number. stop: no more of them."""

    fleet: Fleet
    record: Record
    asks: Sequence[Ask]
    expected: Mapping[int, str]
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, seed: int) -> None:
        """Every client asks until `stop` is set, and has its last answer then."""
        async with asyncio.TaskGroup() as group:
            for tenant in TENANTS:
                for number in range(tenant.clients):
                    rng = random.Random(f"{seed} {tenant.name} {number}")
                    group.create_task(self._client(tenant, rng))

    async def _client(self, tenant: Tenant, rng: random.Random) -> None:
        headers = {"authorization": f"Bearer {tenant.key}"}
        async with httpx.AsyncClient(headers=headers, timeout=None) as client:
            gateway = rng.choice(list(self.fleet.urls))
            while not self.stop.is_set():
                number = rng.randrange(len(self.asks))
                enough = rng.randrange(1, _ENOUGH) if rng.random() < _HANG_UPS else None
                sample, told = await self._request(client, (tenant, gateway), number, enough)
                self.record.samples.append(sample)
                pause_s = rng.expovariate(1 / _THINK_S)
                if told.status in (429, 503):
                    asked_s = float(told.headers.get("retry-after") or 1.0)
                    pause_s += min(asked_s, _LONGEST_PAUSE_S)
                others = [one for one in self.fleet.urls if one != gateway]
                if sample.verdict.outcome is Outcome.CUT or rng.random() < 0.2:
                    gateway = rng.choice(others)
                await asyncio.sleep(pause_s)

    async def _request(
        self, client: httpx.AsyncClient, who: tuple[Tenant, str], number: int, enough: int | None
    ) -> tuple[Sample, Told]:
        tenant, gateway = who
        ask = self.asks[number]
        began = self.record.now()
        told = await ask_once(client, self.fleet.urls[gateway], ask, enough)
        span = Span(gateway, began, self.record.now())
        around = Circumstances(
            span, tenant.limited, tuple(self.record.faults), tuple(self.record.outages)
        )
        verdict = judge(ask, told, self.expected[number], around)
        return Sample(span, tenant.name, ask.kind, verdict), told


async def unharmed(fleet: Fleet, asks: Sequence[Ask]) -> dict[int, str]:
    """What the fleet says to every ask, twice, while nothing is done to it. Raises FleetFailed."""
    once, again = [await _said(asks, url) for url in list(fleet.urls.values())[:2]]
    for number, ask in enumerate(asks):
        if once[number] != again[number]:
            raise FleetFailed(f"{ask.kind} says {once[number]} and {again[number]} to one prompt")
    return once


async def _said(asks: Sequence[Ask], url: str) -> dict[int, str]:
    [tenant] = [one for one in TENANTS if not one.quota]
    limit = asyncio.Semaphore(8)
    headers = {"authorization": f"Bearer {tenant.key}"}
    async with httpx.AsyncClient(headers=headers, timeout=None) as client:

        async def one(ask: Ask) -> Told:
            async with limit:
                return await ask_once(client, url, ask)

        told = await asyncio.gather(*(one(ask) for ask in asks))
    for ask, answer in zip(asks, told, strict=True):
        if answer.status != 200 or answer.error or not answer.done or not answer.finished:
            raise FleetFailed(f"{ask.kind} fails without any fault: {answer}")
    return {number: answer.body for number, answer in enumerate(told)}
