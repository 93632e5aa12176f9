"""Tenants beside one another: fair shares, a noisy neighbour, and a limit over several gateways.

    shares     four tenants of equal weight, with 1 : 2 : 4 : 8 times as many clients,
               all together more than there is for them
    neighbour  one that asks for less than its share, alone and beside one that floods
    limit      many requests at once through several gateways that share Redis: do too many pass?

Real gateways; workers without a model, so that there is a known amount to share.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec

from loadtest.drive import Drive, Driven, drive_async
from loadtest.errors import FleetFailed
from loadtest.report import Report
from loadtest.starting import wait_until
from pando.children import Children
from pando.ports import free_ports, listens
from pando.up import ROOT

NAME = "tenants"
COLUMNS = ("what", "tenant", "asks by", "served", "p50, ms", "p99, ms")
NUM_WORKERS = 2
# Each runs so many requests at once, and each takes TOKENS ticks: about 100 a second in all.
MAX_RUNNING, TOKENS, TICK_MS = 8, 16, 10.0
START_TIMEOUT_S = 60.0
# Ten requests a second from four clients, a tenth of what there is.
VICTIM_EVERY_S = 0.4


@dataclass(frozen=True, slots=True)
class Shape:
    """seconds: of each measurement. burst: requests at once, of which `limit` may pass."""

    seconds: float = 8.0
    gateways: int = 4
    burst: int = 1000
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """What tenants got. overshoot: requests that passed beyond the limit."""

    shares: dict[str, tuple[int, Driven]]
    alone: Driven
    beside: Driven
    flood: Driven
    overshoot: int
    passed: int


def key_of(tenant: str) -> str:
    """The tenant's API key."""
    return f"pnd-loadtest-{tenant}"


@contextmanager
def serving(tenants: Sequence[Mapping[str, object]], num_gateways: int = 1) -> Iterator[list[int]]:
    """Yields the gateways' ports; several share a Redis. Raises FleetFailed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pando-tenants-")))
        children = stack.enter_context(Children(folder, ROOT))
        *workers, redis = free_ports(NUM_WORKERS + 1)
        command = [sys.executable, "-m", "loadtest.fake.worker"]
        command += ["--ports", ",".join(map(str, workers)), "--tick-ms", str(TICK_MS)]
        command += ["--max-running", str(MAX_RUNNING), "--prefill-tokens-s", "1e9"]
        children.start("workers", command)
        settings: dict[str, object] = {"tenants": list(tenants)}
        if num_gateways > 1:
            _start_redis(children, folder, redis)
            settings["redis"] = {"url": f"redis://127.0.0.1:{redis}", "timeout_s": 5}
        ports = free_ports(num_gateways)
        for number, port in enumerate(ports):
            path = folder / f"gateway-{number}.yaml"
            path.write_bytes(msgspec.yaml.encode({**settings, "name": f"gateway-{number}"}))
            command = [sys.executable, "-m", "gateway", "--config", str(path)]
            command += ["--port", str(port)]
            for index, worker in enumerate(workers):
                command += ["--worker", f"w{index}=127.0.0.1:{worker}"]
            children.start(f"gateway-{number}", command)
        _wait(children, ports)
        yield ports


def _start_redis(children: Children, folder: Path, port: int) -> None:
    program = shutil.which("redis-server")
    if program is None:
        raise FleetFailed(
            "redis-server is not installed: several gateways share a limit through it"
        )
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    children.start("redis", [*command, "--dir", str(folder)])
    wait_until(lambda: listens(f"127.0.0.1:{port}"), children, "no Redis", START_TIMEOUT_S)


def _wait(children: Children, ports: Sequence[int]) -> None:
    def ready() -> bool:
        return all(_linked(port) == NUM_WORKERS for port in ports)

    wait_until(ready, children, "the gateways are not ready", START_TIMEOUT_S)


def _linked(port: int) -> int:
    try:
        return int(httpx.get(f"http://127.0.0.1:{port}/ready", timeout=2.0).json()["workers"])
    except (httpx.HTTPError, ValueError, KeyError):
        return 0


def _tenant(name: str, **more: object) -> dict[str, object]:
    digest = hashlib.sha256(key_of(name).encode()).hexdigest()
    return {"id": name, "keys": [digest], **more}


async def measure(shape: Shape, progress: Callable[[str], None]) -> Outcome:
    """Everything, one after the other."""
    progress("shares")
    wants = {"one": 20, "two": 40, "four": 80, "eight": 160}
    with serving([_tenant(name) for name in wants]) as [port]:
        driven = await asyncio.gather(
            *(_drive(port, name, count, shape.seconds) for name, count in wants.items())
        )
    shares = {name: (count, one) for (name, count), one in zip(wants.items(), driven, strict=True)}
    progress("a tenant alone, and beside one that floods")
    with serving([_tenant("victim"), _tenant("flood")]) as [port]:
        alone = await _drive(port, "victim", 4, shape.seconds, every_s=VICTIM_EVERY_S)
        beside, flood = await asyncio.gather(
            _drive(port, "victim", 4, shape.seconds, every_s=VICTIM_EVERY_S),
            _drive(port, "flood", 300, shape.seconds),
        )
    progress(f"{shape.burst} requests at once through {shape.gateways} gateways")
    limited = _tenant("limited", quota={"requests_per_minute": shape.limit})
    with serving([limited], shape.gateways) as ports:
        passed, took_s = await _burst(ports, shape.burst)
    # The bucket leaks while the burst lasts: what it let through meanwhile is no overshoot.
    allowed = shape.limit + int(shape.limit * took_s / 60)
    return Outcome(shares, alone, beside, flood, max(0, passed - allowed), passed)


async def _drive(
    port: int, tenant: str, connections: int, seconds: float, every_s: float = 0.0
) -> Driven:
    drive = Drive(
        port=port,
        connections=connections,
        seconds=seconds,
        warm_s=2.0,
        stream=True,
        max_tokens=TOKENS,
        prefix_chars=200,
        prefixes=8,
        every_s=every_s,
        key=key_of(tenant),
    )
    return await drive_async(drive, lambda: 0.0)


async def _burst(ports: Sequence[int], count: int) -> tuple[int, float]:
    """How many of so many requests pass, and the seconds that deciding took."""
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": "fake-model", "messages": messages, "max_tokens": 1}
    headers = {"authorization": f"Bearer {key_of('limited')}"}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=120, limits=limits, headers=headers) as client:
        began = time.monotonic()
        answers = await asyncio.gather(
            *(
                client.post(
                    f"http://127.0.0.1:{ports[number % len(ports)]}/v1/chat/completions", json=body
                )
                for number in range(count)
            )
        )
        took_s = time.monotonic() - began
    strange = {answer.status_code for answer in answers} - {200, 429}
    if strange:
        raise FleetFailed(f"the burst was answered by {sorted(strange)}")
    return sum(answer.status_code == 200 for answer in answers), took_s


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 where all have the same, 1/n where one has all."""
    total = sum(values)
    return total * total / (len(values) * sum(value * value for value in values)) if total else 0.0


def report(outcome: Outcome) -> Report:
    """The table, and the three figures."""
    rows = [_row("shares", name, count, driven) for name, (count, driven) in outcome.shares.items()]
    rows.append(_row("neighbour", "victim alone", 4, outcome.alone))
    rows.append(_row("neighbour", "victim beside", 4, outcome.beside))
    rows.append(_row("neighbour", "flood", 300, outcome.flood))
    loss = 1.0 - outcome.beside.num_requests / max(outcome.alone.num_requests, 1)
    return Report(
        name=NAME,
        columns=COLUMNS,
        rows=rows,
        summary={
            "jain": jain([driven.num_requests for _, driven in outcome.shares.values()]),
            "victim_loss": max(0.0, loss),
            "quota_overshoot": outcome.overshoot,
        },
    )


def _row(what: str, tenant: str, connections: int, driven: Driven) -> list[str]:
    return [
        what,
        tenant,
        f"{connections} clients",
        f"{driven.num_requests / max(driven.seconds, 1e-9):.1f}/s",
        f"{driven.quantile(0.5) * 1000:,.0f}",
        f"{driven.quantile(0.99) * 1000:,.0f}",
    ]
