"""Starts one router before fake workers and yields where it answers and whose CPU time is its."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from loadtest.errors import FleetFailed
from loadtest.starting import wait_until
from pando.children import Child, Children
from pando.ports import free_ports, listens
from pando.up import ROOT

NUM_WORKERS = 4
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Router:
    """A running router."""

    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class _Room:
    """Where processes run."""

    folder: Path
    children: Children


def _start(room: _Room, name: str, command: list[str], ready: Callable[[], bool]) -> Child:
    child = room.children.start(name, command, {"PYTHONPATH": str(ROOT)})
    wait_until(ready, room.children, f"{name} is not ready", START_TIMEOUT_S)
    return child


def _fake_workers(room: _Room, ports: list[int], tick_ms: float) -> None:
    listed = ",".join(map(str, ports))
    flags = ["--ports", listed, "--tick-ms", str(tick_ms)]
    flags += ["--max-running", "1024", "--prefill-tokens-s", "1e9"]
    command = [sys.executable, "-m", "loadtest.fake.worker", *flags]
    _start(room, "workers", command, lambda: all(listens(f"127.0.0.1:{p}") for p in ports))


def _http_workers(room: _Room, ports: list[int], tick_ms: float) -> None:
    flags = ["--ports", ",".join(map(str, ports)), "--tick-ms", str(tick_ms)]
    command = [sys.executable, "-m", "loadtest.peers.http_workers", *flags]
    _start(room, "workers", command, lambda: all(listens(f"127.0.0.1:{p}") for p in ports))


def _serves(port: int, num_workers: int) -> bool:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/ready", timeout=2.0)
        return bool(answer.json().get("workers") == num_workers)
    except (httpx.HTTPError, ValueError):
        return False


def _answers(port: int) -> bool:
    body = {"model": "fake-model", "messages": [{"role": "user", "content": "Hi"}]}
    try:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        return httpx.post(url, json=body, timeout=2.0).status_code == 200
    except httpx.HTTPError:
        return False


@contextmanager
def _processes() -> Iterator[_Room]:
    """A folder of its own to run in, and what runs there."""
    with tempfile.TemporaryDirectory(prefix="pando-overhead-") as name:
        folder = Path(name)
        with Children(folder, folder) as children:
            yield _Room(folder, children)


@contextmanager
def pando(tick_ms: float, _: str) -> Iterator[Router]:
    """Our gateway before workers that speak its contract."""
    with _processes() as room:
        *ports, port = free_ports(NUM_WORKERS + 1)
        _fake_workers(room, ports, tick_ms)
        command = [sys.executable, "-m", "gateway", "--port", str(port)]
        for number, worker in enumerate(ports):
            command += ["--worker", f"w{number}=127.0.0.1:{worker}"]
        child = _start(room, "router", command, lambda: _serves(port, NUM_WORKERS))
        yield Router(port, child.process.pid)


@contextmanager
def stack(tick_ms: float, _: str) -> Iterator[Router]:
    """The libraries under our gateway alone; it answers whole requests only."""
    with _processes() as room:
        *ports, port = free_ports(NUM_WORKERS + 1)
        _fake_workers(room, ports, tick_ms)
        command = [sys.executable, "-m", "loadtest.peers.stack", "--port", str(port)]
        for worker in ports:
            command += ["--worker", f"127.0.0.1:{worker}"]
        child = _start(room, "router", command, lambda: listens(f"127.0.0.1:{port}"))
        yield Router(port, child.process.pid)


@contextmanager
def pando_http(tick_ms: float, _: str) -> Iterator[Router]:
    """Our gateway before servers with OpenAI's API, as smg has them."""
    with _processes() as room:
        *ports, port = free_ports(NUM_WORKERS + 1)
        _http_workers(room, ports, tick_ms)
        settings = room.folder / "gateway.yaml"
        members = "".join(
            f"- {{url: 'http://127.0.0.1:{worker}', name: f{number}, kind: vllm}}\n"
            for number, worker in enumerate(ports)
        )
        settings.write_text(f"foreign:\n{members}")
        command = [sys.executable, "-m", "gateway", "--config", str(settings)]
        command += ["--port", str(port)]
        child = _start(room, "router", command, lambda: _serves(port, NUM_WORKERS))
        yield Router(port, child.process.pid)


@contextmanager
def smg(tick_ms: float, program: str) -> Iterator[Router]:
    """SMG, cache-aware; `program` is where its command lies."""
    with _processes() as room:
        *ports, port, prometheus = free_ports(NUM_WORKERS + 2)
        _http_workers(room, ports, tick_ms)
        command = [program, "launch", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(prometheus)]
        command += ["--policy", "cache_aware", "--log-level", "info", "--worker-urls"]
        command += [f"http://127.0.0.1:{worker}" for worker in ports]
        if not os.access(program, os.X_OK):
            raise FleetFailed(f"no program {program!r}: name smg's with --smg")
        child = _start(room, "router", command, lambda: _answers(port))
        time.sleep(2.0)  # it adds its workers one by one
        yield Router(port, child.process.pid)


@contextmanager
def direct(tick_ms: float, _: str) -> Iterator[Router]:
    """No router: one of the fake servers itself."""
    with _processes() as room:
        [port] = free_ports(1)
        flags = ["--ports", str(port), "--tick-ms", str(tick_ms)]
        command = [sys.executable, "-m", "loadtest.peers.http_workers", *flags]
        ready = lambda: listens(f"127.0.0.1:{port}")  # noqa: E731
        child = _start(room, "workers", command, ready)
        yield Router(port, child.process.pid)


ROUTERS = {
    "pando": pando,
    "stack": stack,
    "pando-http": pando_http,
    "smg": smg,
    "direct": direct,
}
