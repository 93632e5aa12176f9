"""The fleet under chaos: two gateways that share Redis, and workers behind wires of ours."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
from redis import Redis
from redis.exceptions import RedisError

from loadtest.chaos.members import Member
from loadtest.chaos.wires import Wire
from loadtest.errors import FleetFailed
from pando.ports import free_ports

PREFIX = "chaos"
SILENCE_S, LEASE_S, SHUTDOWN_S, DRAIN_S = 3.0, 6.0, 20.0, 3.0
# A pool that is too small for what is asked: sequences are preempted there.
SMALL_POOL = "320 tokens"
_POLL_S = 0.1
_CALM_S = 120.0
# Longer than any member may take to leave.
ENDED_S = 90.0
_LIBFAKETIME = ("/usr/lib", "libfaketimeMT.so.1")


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who asks. quota: as in its configuration; clients: how many of it."""

    name: str
    clients: int
    quota: dict[str, int] = field(default_factory=dict)
    limited: bool = False

    @property
    def key(self) -> str:
        """Its API key."""
        return f"pnd-chaos-{self.name}"


TENANTS = (
    Tenant("free", 4),
    Tenant("wide", 4, {"tokens_per_minute": 10_000_000, "concurrency": 64}),
    Tenant("metered", 2, {"tokens_per_minute": 3000}, limited=True),
    Tenant("narrow", 3, {"concurrency": 2}, limited=True),
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is started."""

    model: str
    workers: int = 3
    gateways: int = 2


@dataclass(slots=True)
class Fleet:
    """Processes, the wires between them, and where each is reached. Lives on one event loop."""

    folder: Path
    wish: Wish
    redis: Member
    redis_port: int
    workers: dict[str, Member] = field(default_factory=dict)
    gateways: dict[str, Member] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    wires: dict[tuple[str, str], Wire] = field(default_factory=dict)

    @property
    def members(self) -> list[Member]:
        """All processes that there should be."""
        return [self.redis, *self.workers.values(), *self.gateways.values()]

    def clock(self, name: str) -> Path:
        """The file that moves the wall clock of those who look at it."""
        return self.folder / f"{name}.clock"

    def turn_clock(self, name: str, seconds: int) -> None:
        """The wall clock of that process is so much ahead."""
        self.clock(name).write_text(f"{seconds:+d}\n")

    @property
    def jumpy(self) -> list[str]:
        """Whose wall clock can be moved: the last worker and the last gateway."""
        return [list(self.workers)[-1], list(self.gateways)[-1]]

    async def calm(self) -> None:
        """What should run runs, and every gateway has every worker. Raises FleetFailed."""
        for member in self.members:
            if not member.alive:
                member.start()
        async with httpx.AsyncClient(timeout=5.0) as client:
            end = asyncio.get_running_loop().time() + _CALM_S
            while not await self._is_linked(client):
                if asyncio.get_running_loop().time() > end:
                    raise FleetFailed(f"not all workers are linked after {_CALM_S:.0f} s")
                await asyncio.sleep(_POLL_S)

    async def _is_linked(self, client: httpx.AsyncClient) -> bool:
        for url in self.urls.values():
            try:
                ready = (await client.get(f"{url}/ready")).json()
            except (httpx.HTTPError, ValueError):
                return False
            if ready.get("workers") != len(self.workers):
                return False
        return await asyncio.to_thread(self._redis_answers)

    def _redis_answers(self) -> bool:
        """Whether Redis takes commands."""
        try:
            with self.store() as store:
                return bool(store.ping())
        except RedisError:
            return False

    @contextmanager
    def store(self) -> Iterator[Redis]:
        """Yields a client of the fleet's Redis."""
        with Redis(port=self.redis_port, socket_timeout=5.0, decode_responses=True) as client:
            yield client


def faketime() -> Path:
    """Where the library is that moves a wall clock. Raises FleetFailed."""
    folder, name = _LIBFAKETIME
    found = next(Path(folder).glob(f"*/faketime/{name}"), None)
    if found is None:
        raise FleetFailed("faketime is not installed: the clock of a process jumps by it")
    return found


async def built(folder: Path, wish: Wish) -> Fleet:
    """Returns the fleet, of which nothing runs yet. Raises FleetFailed where a program lacks."""
    ports = free_ports(1 + 2 * wish.workers + wish.gateways)
    fleet = Fleet(folder, wish, _redis(folder, ports[0]), ports.pop(0))
    for number in range(wish.workers):
        name = f"worker-{number}"
        port, metrics = ports.pop(), ports.pop()
        fleet.metrics[name] = f"http://127.0.0.1:{metrics}"
        pool = SMALL_POOL if number == 0 else "256MiB"
        command = [sys.executable, "-m", "worker", "--name", name, "--model", wish.model]
        command += ["--listen", f"127.0.0.1:{port}", "--metrics-port", str(metrics)]
        command += ["--kv-memory", pool, "--threads", "1", "--drain-s", str(DRAIN_S)]
        command += ["--poison-freed-pages"]
        fleet.workers[name] = Member(name, command, folder / f"{name}.log")
        for gateway in range(wish.gateways):
            wire = fleet.wires[f"gateway-{gateway}", name] = Wire(port)
            await wire.open()
    for number, port in enumerate(ports):
        _add_gateway(fleet, f"gateway-{number}", port)
    library = faketime()
    for name in fleet.jumpy:
        fleet.turn_clock(name, 0)
        (fleet.workers | fleet.gateways)[name].environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(fleet.clock(name)),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
    return fleet


def _redis(folder: Path, port: int) -> Member:
    program = shutil.which("redis-server")
    if program is None:
        raise FleetFailed("redis-server is not installed: the gateways share limits through it")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir"]
    command += [str(folder), "--appendonly", "yes", "--appendfsync", "always"]
    return Member("redis", command, folder / "redis.log")


def _add_gateway(fleet: Fleet, name: str, port: int) -> None:
    settings: dict[str, Any] = {
        "name": name,
        "port": port,
        "shutdown_s": SHUTDOWN_S,
        "redis": {
            "url": f"redis://127.0.0.1:{fleet.redis_port}",
            "prefix": PREFIX,
            "timeout_s": 0.5,
        },
        "quota": {"lease_s": LEASE_S},
        "link": {"silence_s": SILENCE_S, "backoff_max_s": 1},
        "workers": [
            {"name": worker, "address": f"127.0.0.1:{wire.port}"}
            for (gateway, worker), wire in fleet.wires.items()
            if gateway == name
        ],
        "tenants": [
            {
                "id": tenant.name,
                "keys": [hashlib.sha256(tenant.key.encode()).hexdigest()],
                "quota": tenant.quota,
            }
            for tenant in TENANTS
        ],
    }
    path = fleet.folder / f"{name}.yaml"
    path.write_bytes(msgspec.yaml.encode(settings))
    command = [sys.executable, "-m", "gateway", "--config", str(path)]
    fleet.gateways[name] = Member(name, command, fleet.folder / f"{name}.log")
    fleet.urls[name] = f"http://127.0.0.1:{port}"


async def ended(member: Member, number: signal.Signals, grace_s: float = ENDED_S) -> None:
    """The process has been told, and has ended; the loop goes on meanwhile. Raises FleetFailed."""
    member.take_log()
    member.tell(signal.SIGCONT)
    member.tell(number)
    assert member.process is not None
    try:
        await asyncio.to_thread(member.process.wait, grace_s)
    except subprocess.TimeoutExpired as error:
        raise FleetFailed(
            f"{member.name} runs {grace_s:.0f} s after {signal.Signals(number).name}"
        ) from error


async def close(fleet: Fleet) -> None:
    """Nothing of it runs any more."""
    for member in [*fleet.gateways.values(), *fleet.workers.values(), fleet.redis]:
        member.end(signal.SIGTERM, 30.0)
    for wire in fleet.wires.values():
        await wire.close()
