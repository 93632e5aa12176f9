"""A fleet of this machine's own, started by `pando up` and ended with the test."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from loadtest.errors import FleetFailed
from pando.children import Children
from pando.ports import free_ports
from pando.up import ROOT, num_linked

POLL_S = 0.2
START_TIMEOUT_S = 900.0
GRACE_S = 20.0


@dataclass(frozen=True, slots=True)
class FleetWish:
    """What `pando up` is asked for."""

    model: str
    prefix_cache: str
    num_workers: int = 1
    kv_memory: str = "1GiB"

    def flags(self, port: int, log_folder: Path) -> list[str]:
        """Returns the flags of `pando up`."""
        return [
            *("--model", self.model),
            *("--prefix-cache", self.prefix_cache),
            *("--workers", str(self.num_workers)),
            *("--kv-memory", self.kv_memory),
            *("--port", str(port)),
            *("--log-folder", str(log_folder)),
        ]


@contextmanager
def started(wish: FleetWish) -> Iterator[str]:
    """Yields the URL of a fleet of which every worker is ready. Raises FleetFailed."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="pando-loadtest-") as name:
        folder = Path(name)
        with Children(folder, ROOT, GRACE_S) as children:
            command = [sys.executable, "-m", "pando.command", "up", *wish.flags(port, folder)]
            up = children.start("up", command)
            began = time.monotonic()
            with httpx.Client(timeout=2.0) as client:
                while num_linked(client, url) < wish.num_workers:
                    if up.process.poll() is not None:
                        raise FleetFailed(up.last_lines())
                    if time.monotonic() - began > START_TIMEOUT_S:
                        raise FleetFailed(f"No fleet after {START_TIMEOUT_S:.0f} s.")
                    time.sleep(POLL_S)
            yield url
