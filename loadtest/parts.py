"""A gateway and workers started one by one, as an orchestrator does: each can die and come back."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from loadtest.starting import wait_until
from pando.children import Child, Children
from pando.ports import free_ports
from pando.up import ROOT, num_linked

START_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class PartsWish:
    """What is started. threads: per worker; worker_flags: for every worker."""

    model: str
    num_workers: int = 3
    num_gateways: int = 1
    threads: int = 1
    kv_memory: str = "256MiB"
    worker_flags: tuple[str, ...] = ()
    gateway_settings: str = ""


@dataclass(slots=True)
class Parts:
    """Running processes. urls: of the gateways."""

    wish: PartsWish
    children: Children
    folder: Path
    urls: list[str] = field(default_factory=list)
    gateways: dict[str, Child] = field(default_factory=dict)
    workers: dict[str, Child] = field(default_factory=dict)
    _addresses: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        """Every worker is linked to every gateway. Raises FleetFailed."""
        ports = free_ports(self.wish.num_workers + self.wish.num_gateways)
        for number in range(self.wish.num_workers):
            self._addresses[f"worker-{number}"] = f"127.0.0.1:{ports.pop()}"
        for name in self._addresses:
            self.start_worker(name)
        for number, port in enumerate(ports):
            self._start_gateway(f"gateway-{number}", port)
        self.wait_until_linked()

    def start_worker(self, name: str) -> None:
        """A process of that name begins to load."""
        flags = [
            *("--name", name),
            *("--listen", self._addresses[name]),
            *("--model", self.wish.model),
            *("--kv-memory", self.wish.kv_memory),
            *("--threads", str(self.wish.threads)),
            *self.wish.worker_flags,
        ]
        self.workers[name] = self.children.start(name, [sys.executable, "-m", "worker", *flags])

    def address(self, name: str) -> str:
        """Where the worker of that name listens."""
        return self._addresses[name]

    def kill(self, name: str) -> None:
        """The worker dies at once, and says nothing."""
        self._end(name, signal.SIGKILL)

    def terminate(self, name: str) -> None:
        """The worker is asked to leave, and has left."""
        self._end(name, signal.SIGTERM)

    def wait_until_linked(self) -> None:
        """Every gateway has every worker. Raises FleetFailed."""
        with httpx.Client(timeout=5.0) as client:
            for url in self.urls:
                self._wait(
                    lambda url=url: num_linked(client, url) >= self.wish.num_workers  # type: ignore[misc]
                )

    def _end(self, name: str, number: signal.Signals) -> None:
        child = self.workers.pop(name)
        child.process.send_signal(number)
        child.process.wait()
        self.children.forget(child)

    def _start_gateway(self, name: str, port: int) -> None:
        settings = self.folder / f"{name}.yaml"
        settings.write_text(f"name: {name}\n{self.wish.gateway_settings}")
        flags: list[str] = ["--config", str(settings), "--port", str(port)]
        for worker, address in self._addresses.items():
            flags += ["--worker", f"{worker}={address}"]
        self.gateways[name] = self.children.start(name, [sys.executable, "-m", "gateway", *flags])
        self.urls.append(f"http://127.0.0.1:{port}")

    def _wait(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, self.children, "not all workers are linked", START_TIMEOUT_S)


@contextmanager
def running(wish: PartsWish) -> Iterator[Parts]:
    """Yields the parts once every worker is linked; none outlives the context."""
    with tempfile.TemporaryDirectory(prefix="pando-loadtest-") as name:
        folder = Path(name)
        with Children(folder, ROOT) as children:
            parts = Parts(wish, children, folder)
            parts.start()
            yield parts


def names(parts: Parts) -> Sequence[str]:
    """The workers' names, in order."""
    return sorted(parts.workers)
