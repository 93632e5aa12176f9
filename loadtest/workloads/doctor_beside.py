"""What the doctor costs a gateway: two processes before the same fake workers, one without it.

They are driven in turns, a moment each, so that whatever else the machine does meets both.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx
import msgspec
import uvloop

from loadtest.drive import Drive, drive_async
from loadtest.processes import cpu_seconds
from loadtest.starting import wait_until
from pando.children import Child, Children
from pando.ports import free_ports, listens
from pando.up import ROOT, num_linked

START_TIMEOUT_S = 60.0
NUM_WORKERS = 4
ARMS = ("with", "without")


@dataclass(frozen=True, slots=True)
class Beside:
    """CPU of the gateway, microseconds a request; medians over the turns."""

    with_us: float
    without_us: float


def measure(rounds: int, seconds: float = 2.0) -> Beside:
    """Chats of 2 KB under 32 system prompts, 16 at once. Raises FleetFailed."""
    taken: dict[str, list[float]] = {name: [] for name in ARMS}
    with _serving() as gateways:
        for number in range(rounds):
            for name in ARMS if number % 2 else reversed(ARMS):
                taken[name].append(_request_us(*gateways[name], seconds))
    return Beside(*(median(taken[name]) for name in ARMS))


def _request_us(port: int, child: Child, seconds: float) -> float:
    pid = child.process.pid
    load = Drive(port, 16, seconds, 0.5, max_tokens=8)
    driven = uvloop.run(drive_async(load, lambda: cpu_seconds(pid)))
    return driven.cpu_s / max(driven.num_requests, 1) * 1e6


@contextmanager
def _serving() -> Iterator[dict[str, tuple[int, Child]]]:
    """Yields each gateway's port and process."""
    with tempfile.TemporaryDirectory(prefix="pando-beside-") as name:
        folder = Path(name)
        with Children(folder, ROOT) as children:
            *workers, first, second = free_ports(NUM_WORKERS + 2)
            flags = ["--ports", ",".join(map(str, workers)), "--tick-ms", "0"]
            flags += ["--max-running", "1024", "--prefill-tokens-s", "1e9"]
            children.start("workers", [sys.executable, "-m", "loadtest.fake.worker", *flags])
            wait_until(
                lambda: all(listens(f"127.0.0.1:{one}") for one in workers),
                children,
                "no workers",
                START_TIMEOUT_S,
            )
            yield {
                arm: (port, _gateway(children, folder / f"{arm}.json", port, workers))
                for arm, port in zip(ARMS, (first, second), strict=True)
            }


def _gateway(children: Children, file: Path, port: int, workers: list[int]) -> Child:
    """A gateway that has all workers; named by its file, and so with a doctor or without."""
    settings = {
        "port": port,
        "log_level": "warning",
        "doctor": {"enabled": file.stem == "with"},
        "workers": [{"address": f"127.0.0.1:{one}"} for one in workers],
    }
    file.write_bytes(msgspec.json.encode(settings))
    command = [sys.executable, "-m", "gateway", "--config", str(file)]
    child = children.start(file.stem, command)
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(timeout=5.0, trust_env=False) as http:
        wait_until(
            lambda: num_linked(http, url) >= len(workers), children, "no link", START_TIMEOUT_S
        )
    return child
