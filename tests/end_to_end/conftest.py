"""Fleets of real processes on the real small model, reached like a user's: over HTTP."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from pando.ports import free_ports

ROOT = Path(__file__).parents[2]
MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class Fleet:
    """A running `pando up`."""

    url: str
    process: subprocess.Popen[bytes]
    logs: Path

    def worker_pids(self) -> dict[str, int]:
        """Process ids of the workers by name, from their own last start lines."""
        found = {}
        for log in self.logs.glob("worker-*.log"):
            ready = re.findall(r"ready worker=(\S+) port=\d+ pid=(\d+)", log.read_text())
            assert ready, f"{log} has no start line"
            name, pid = ready[-1]
            found[name] = int(pid)
        return found

    def metric(self, name: str) -> float:
        """Sum of a gateway metric over its labels."""
        text = httpx.get(f"{self.url}/metrics").text
        lines = [line for line in text.splitlines() if re.match(rf"{name}(\{{| )", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def eventually(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Waits until something holds."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, "it never came to hold"
            time.sleep(0.05)


@pytest.fixture(scope="session")
def fleet(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet that no test may break."""
    with up(tmp_path_factory.mktemp("logs")) as fleet:
        yield fleet


@pytest.fixture
def own_fleet(smollm2_folder: Path, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet that the test may break."""
    with up(tmp_path) as fleet:
        yield fleet


@contextmanager
def up(logs: Path) -> Iterator[Fleet]:
    """Runs `pando up` with two workers, whose freed pages are poisoned; leaves no process."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "pando.command", "up", "--port", str(port)]
    command += ["--model", MODEL, "--workers", "2", "--threads", "1", "--kv-memory", "256MiB"]
    command += ["--log-folder", str(logs), "--worker-flag=--poison-freed-pages"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    fleet = Fleet(f"http://127.0.0.1:{port}", process, logs)

    def ready() -> bool:
        assert process.poll() is None, "pando up ended; see its logs"
        return _num_linked(fleet.url) == 2

    try:
        fleet.eventually(ready, 300)
        yield fleet
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(60)
    for pid in fleet.worker_pids().values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@dataclass(slots=True)
class Parts:
    """A gateway and workers started one by one, as under an orchestrator."""

    url: str
    workers: dict[str, subprocess.Popen[bytes]]


@pytest.fixture
def parts(smollm2_folder: Path, tmp_path: Path) -> Iterator[Parts]:
    """Two workers and a gateway that outlives either of them."""
    ports = free_ports(3)
    processes = []

    def start(name: str, *command: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=ROOT, stderr=log, stdout=log
            )
        processes.append(process)
        return process

    gateway = ["gateway", "--port", str(ports[2])]
    workers = {}
    for name, port in zip(("worker-0", "worker-1"), ports[:2], strict=True):
        listen = f"127.0.0.1:{port}"
        flags = ("--name", name, "--listen", listen, "--kv-memory", "128MiB", "--model", MODEL)
        workers[name] = start(name, "worker", *flags)
        gateway += ["--worker", f"{name}={listen}"]
    start("gateway", *gateway)
    parts = Parts(f"http://127.0.0.1:{ports[2]}", workers)
    fleet = Fleet(parts.url, processes[-1], tmp_path)
    try:
        fleet.eventually(lambda: _num_linked(parts.url) == 2, 300)
        yield parts
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def _num_linked(url: str) -> int:
    try:
        return int(httpx.get(f"{url}/ready").json()["workers"])
    except (httpx.TransportError, KeyError):
        return 0
