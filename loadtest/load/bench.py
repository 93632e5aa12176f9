"""One gateway and one worker for a measurement: what goes there, and what the worker's memory does.

K/V in use is what running sequences refer to, by the worker's own gauge; resident memory is the
highest that the kernel saw of the worker's process.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from loadtest.errors import FleetFailed
from loadtest.load.arrivals import Closed
from loadtest.load.figures import Figures, figures
from loadtest.load.prompt import Conversation, plain
from loadtest.load.sending import Plan, Sender
from loadtest.load.target import Target, first_model
from loadtest.parts import Parts, PartsWish, running
from pando.ports import free_ports

POLL_S = 0.1
PAGE_SIZE = 16
WORKER = "worker-0"
WARM_TOKENS = 4
_USED = re.compile(r"^pando_worker_kv_used_pages (\S+)$", re.MULTILINE)
_BYTES = re.compile(r"([\d,]+) bytes a token")
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Stand:
    """What is started. flags: of the worker; settings: the gateway's file, in YAML."""

    model: str
    cache: str
    kv_memory: str = "1GiB"
    threads: int = 2
    flags: tuple[str, ...] = ()
    settings: str = ""


@dataclass(slots=True)
class Bench:
    """A running stand. used_pages: the most that were seen in use; written by `measure`."""

    parts: Parts
    target: Target
    metrics_url: str
    used_pages: int = 0

    async def measure(self, conversations: Sequence[Conversation], concurrency: int) -> Figures:
        """Sends them all; returns the figures of this call. Raises FleetFailed if one failed."""
        sender = Sender(self.target, Plan(Closed(concurrency)))
        watching = asyncio.create_task(self._watch())
        try:
            found = await sender.send(conversations)
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        told = figures(found)
        if told.errors:
            raise FleetFailed(f"{told.requests - told.good} requests failed: {told.errors}")
        return told

    @property
    def kv_bytes(self) -> int:
        """The most K/V that was in use."""
        log = self.parts.workers[WORKER].log.read_text("utf-8", "replace")
        return self.used_pages * PAGE_SIZE * bytes_a_token(log)

    @property
    def resident_bytes(self) -> int:
        """The most memory that the worker's process has had."""
        status = Path(f"/proc/{self.parts.workers[WORKER].process.pid}/status").read_text()
        return peak_bytes(status)

    async def _watch(self) -> None:
        async with httpx.AsyncClient(timeout=10.0) as http:
            while True:
                with suppress(httpx.HTTPError):
                    text = (await http.get(self.metrics_url)).text
                    self.used_pages = max(self.used_pages, used_pages(text))
                await asyncio.sleep(POLL_S)


def used_pages(metrics: str) -> int:
    """Returns the gauge of pages in use. Raises FleetFailed where it is missing."""
    found = _USED.search(metrics)
    if found is None:
        raise FleetFailed("the worker's metrics have no pando_worker_kv_used_pages")
    return int(float(found[1]))


def bytes_a_token(log: str) -> int:
    """Returns a token's K/V in bytes, as the worker said at its start. Raises FleetFailed."""
    found = _BYTES.search(log)
    if found is None:
        raise FleetFailed("the worker's log does not say how many bytes a token takes")
    return int(found[1].replace(",", ""))


def peak_bytes(status: str) -> int:
    """Returns the peak of resident memory from /proc/PID/status; 0 where it is not told."""
    found = _PEAK.search(status)
    return int(found[1]) * 1024 if found else 0


@contextmanager
def standing(stand: Stand) -> Iterator[Bench]:
    """Yields a gateway and a worker that are ready; they end with the context."""
    [port] = free_ports(1)
    flags = (
        *("--prefix-cache", stand.cache),
        *("--metrics-port", str(port)),
        *("--page-size", str(PAGE_SIZE)),
        *stand.flags,
    )
    wish = PartsWish(
        stand.model,
        1,
        threads=stand.threads,
        kv_memory=stand.kv_memory,
        worker_flags=flags,
        gateway_settings=stand.settings,
    )
    with running(wish) as parts:
        url = parts.urls[0]
        target = Target(url, first_model(url, {}), ignore_eos=True)
        bench = Bench(parts, target, f"http://127.0.0.1:{port}/metrics")
        # The first request of a process pays for what no later one does.
        asyncio.run(bench.measure([plain("warm", "", "Warm up.", WARM_TOKENS)], 1))
        yield bench
