"""What must not be there when all is quiet: pages, requests, reservations, files, threads."""

from __future__ import annotations

import asyncio
import re
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from loadtest.chaos.answers import ask_once
from loadtest.chaos.asks import Ask
from loadtest.chaos.fleet import LEASE_S, PREFIX, TENANTS, Fleet, ended
from loadtest.chaos.members import Member

_QUIET_S = 2.0 * LEASE_S
_TRIES, _TRY_S = 50, 0.2
# What a process may have more of than under load, of files and of threads: pools that grow.
_MARGIN = 12


@dataclass(frozen=True, slots=True)
class Held:
    """What a process has open."""

    files: int
    threads: int


@dataclass(slots=True)
class Leftovers:
    """Sentences, by what is left. pages, quota: how many of them."""

    pages: int = 0
    quota: int = 0
    others: list[str] = field(default_factory=list)


class Watch:
    """Knows the most that every incarnation had open in its first time under load."""

    def __init__(self) -> None:
        self._preempted: dict[tuple[str, int], float] = {}
        self._serving: set[tuple[str, int]] = set()
        self._most: dict[tuple[str, int], Held] = {}
        self._looks: dict[tuple[str, int], int] = {}

    @property
    def preemptions(self) -> int:
        """How often a sequence gave its pages back to wait, over all incarnations of workers."""
        return int(sum(self._preempted.values()))

    async def ask(self, fleet: Fleet, client: httpx.AsyncClient) -> None:
        """Takes over what members tell of themselves; who tells nothing is asked next time."""
        members = fleet.workers | fleet.gateways
        for name, url in (fleet.metrics | fleet.urls).items():
            with suppress(httpx.HTTPError):
                text = (await client.get(f"{url}/metrics")).text
                self.serves(members[name])
                key = (name, members[name].starts)
                self._preempted[key] = value(text, "pando_worker_preemptions_total")

    def serves(self, member: Member) -> None:
        """It has loaded: what it has open from now on counts."""
        self._serving.add((member.name, member.starts))

    def look(self, members: list[Member]) -> None:
        """Called again and again; the first looks at a process that serves count."""
        for member in members:
            key = (member.name, member.starts)
            held = held_by(member)
            if held is None or self._looks.get(key, 0) >= _TRIES or key not in self._serving:
                continue
            self._looks[key] = self._looks.get(key, 0) + 1
            most = self._most.get(key, Held(0, 0))
            self._most[key] = Held(max(most.files, held.files), max(most.threads, held.threads))

    def grown(self, members: list[Member]) -> list[str]:
        """Who has more open now than it had then."""
        found = []
        for member in members:
            held, most = held_by(member), self._most.get((member.name, member.starts))
            if held is None or most is None:
                continue
            for what in ("files", "threads"):
                now, then = getattr(held, what), getattr(most, what)
                if now > then + _MARGIN:
                    found.append(f"{member.name} has {now} {what} open, and had {then}")
        return found


def held_by(member: Member) -> Held | None:
    """What a process has open; None, where it does not run."""
    if not member.alive:
        return None
    folder = Path(f"/proc/{member.pid}")
    try:
        files = sum(1 for _ in (folder / "fd").iterdir())
        return Held(files, sum(1 for _ in (folder / "task").iterdir()))
    except OSError:
        return None


async def look(fleet: Fleet) -> Leftovers:
    """What is left once nobody has asked for a while. Leases of who died have ended by then."""
    await asyncio.sleep(_QUIET_S)
    found = Leftovers()
    async with httpx.AsyncClient(timeout=10.0) as client:
        for _ in range(_TRIES):  # gauges are told with the next heartbeat
            found = Leftovers()
            for urls, count in ((fleet.metrics, _worker), (fleet.urls, _gateway)):
                for name, url in urls.items():
                    try:
                        count(found, name, (await client.get(f"{url}/metrics")).text)
                    except httpx.HTTPError as error:
                        found.others.append(f"{name} shows no metrics: {error!r}")
            if not found.pages and not found.others:
                break
            await asyncio.sleep(_TRY_S)
    with fleet.store() as store:
        for tenant in TENANTS:
            left = int(store.zcard(f"{PREFIX}:running:{tenant.name}"))
            found.quota += left
            if left:
                found.others.append(f"Redis: {left} leases of {tenant.name}")
        # What a gateway that died had taken ends by itself, when no request can last any longer.
        endless = [key for key in store.scan_iter(f"{PREFIX}:*:*") if store.ttl(key) < 0]
        found.others += [f"Redis: {key} has no end" for key in endless]
    return found


async def refused_in_memory(fleet: Fleet, ask: Ask) -> int:
    """How many requests each gateway's own memory has kept of its tenants' concurrency.

    Redis is gone for it: then as many pass at every gateway as the limit says.
    """
    await ended(fleet.redis, signal.SIGKILL)
    refused = 0
    for tenant in TENANTS:
        count = tenant.quota.get("concurrency")
        if count is None:
            continue
        headers = {"authorization": f"Bearer {tenant.key}"}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(headers=headers, timeout=None, limits=limits) as client:
            for url in fleet.urls.values():
                told = await asyncio.gather(*(ask_once(client, url, ask) for _ in range(count)))
                refused += sum(one.status == 429 for one in told)
    return refused


def value(text: str, name: str) -> float:
    """The sum of a metric over its labels."""
    lines = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
    return sum(float(line) for line in lines)


def _worker(found: Leftovers, name: str, text: str) -> None:
    found.pages += int(value(text, "pando_worker_kv_used_pages"))
    for gauge in ("running_sequences", "waiting_sequences"):
        if left := value(text, f"pando_worker_{gauge}"):
            found.others.append(f"{name}: {left:.0f} {gauge}")
    accepted = value(text, "pando_worker_accepted_requests_total")
    ends = value(text, "pando_worker_ended_requests_total")
    if accepted != ends:
        found.others.append(f"{name}: {accepted:.0f} requests accepted, {ends:.0f} ended")


def _gateway(found: Leftovers, name: str, text: str) -> None:
    for gauge in ("requests_in_flight", "waiting_requests", "worker_leases", "worker_used_pages"):
        if left := value(text, f"pando_gateway_{gauge}"):
            found.others.append(f"{name}: {left:.0f} {gauge}")
    accepted = value(text, "pando_gateway_accepted_requests_total")
    ends = value(text, "pando_gateway_ended_requests_total")
    if accepted != ends:
        found.others.append(f"{name}: {accepted:.0f} requests accepted, {ends:.0f} ended")
