"""Gateway processes before fake workers, for as long as a replay lasts; one may come later."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec

from gateway.config import RoutingConfig
from loadtest.fake.engine import Pace
from loadtest.starting import wait_until
from pando.children import Children
from pando.ports import free_ports, listens
from pando.up import ROOT, num_linked

START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class FleetWish:
    """What is started. num_later: workers that the gateways know and that start when told to."""

    num_workers: int
    cache_tokens: int
    pace: Pace
    routing: RoutingConfig
    num_gateways: int = 1
    num_later: int = 0


@dataclass(slots=True)
class ReplayFleet:
    """Running processes. ports: of the gateways."""

    wish: FleetWish
    children: Children
    folder: Path
    ports: list[int] = field(default_factory=list)
    _workers: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Every worker that starts now is linked to every gateway. Raises FleetFailed."""
        wish = self.wish
        self._workers = free_ports(wish.num_workers + wish.num_later + wish.num_gateways)
        self.ports = [self._workers.pop() for _ in range(wish.num_gateways)]
        self._start_workers(0, wish.num_workers)
        now = self._workers[: wish.num_workers]
        self._wait(lambda: all(listens(f"127.0.0.1:{port}") for port in now))
        for number, port in enumerate(self.ports):
            self._start_gateway(f"gateway-{number}", port)
        with httpx.Client(timeout=5.0) as client:
            for port in self.ports:
                url = f"http://127.0.0.1:{port}"
                self._wait(lambda url=url: num_linked(client, url) >= wish.num_workers)  # type: ignore[misc]

    def start_later(self) -> None:
        """The workers that were held back begin to listen."""
        self._start_workers(self.wish.num_workers, self.wish.num_later)

    def _start_workers(self, first: int, count: int) -> None:
        wish = self.wish
        ports = self._workers[first : first + count]
        flags = [
            *("--ports", ",".join(map(str, ports))),
            *("--first", str(first)),
            *("--cache-tokens", str(wish.cache_tokens)),
            *("--prefill-tokens-s", str(wish.pace.prefill_tokens_s)),
            *("--tick-ms", str(wish.pace.tick_s * 1000)),
            *("--max-running", str(wish.pace.max_running)),
        ]
        self.children.start(
            f"workers-{first}", [sys.executable, "-m", "loadtest.fake.worker", *flags]
        )

    def _start_gateway(self, name: str, port: int) -> None:
        workers = [
            {"name": f"w{number}", "address": f"127.0.0.1:{address}"}
            for number, address in enumerate(self._workers)
        ]
        settings = {
            "name": name,
            "port": port,
            "workers": workers,
            "routing": self.wish.routing,
            "log_level": "warning",
            "link": {"backoff_max_s": 0.2},
        }
        file = self.folder / f"{name}.json"
        file.write_bytes(msgspec.json.encode(settings))
        self.children.start(name, [sys.executable, "-m", "gateway", "--config", str(file)])

    def _wait(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, self.children, "not all is ready", START_TIMEOUT_S)


@contextmanager
def running(wish: FleetWish) -> Iterator[ReplayFleet]:
    """Yields the fleet once every worker is linked; nothing outlives the context."""
    with tempfile.TemporaryDirectory(prefix="pando-replay-") as name:
        folder = Path(name)
        with Children(folder, ROOT) as children:
            fleet = ReplayFleet(wish, children, folder)
            fleet.start()
            yield fleet
