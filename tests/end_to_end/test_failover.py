"""Real workers are killed, stopped, cut off and restarted under live streams: nobody notices."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest

from loadtest.parts import Parts, PartsWish, running
from loadtest.workloads.failover import Shape, Told, requests, tell
from pando.ports import free_ports
from tests.end_to_end.conftest import MODEL, ROOT

SETTINGS = "link: {silence_s: 1.5, backoff_max_s: 0.5}\n"
SHAPE = Shape(streams=6, new_tokens=40)


@pytest.fixture(scope="module")
def parts(smollm2_folder: object) -> Iterator[Parts]:
    """Two gateways and two workers, whose freed pages are poisoned."""
    flags = ("--poison-freed-pages", "--drain-s", "0.1")
    wish = PartsWish(MODEL, 2, 2, worker_flags=flags, gateway_settings=SETTINGS)
    with running(wish) as parts:
        yield parts


class Counter:
    """Calls something once, when so many events have come over all streams."""

    def __init__(self, at: int, action: Callable[[], None]):
        self._left = at
        self._action = action

    def count(self) -> None:
        self._left -= 1
        if not self._left:
            threading.Thread(target=self._action).start()


async def all_told(url: str, tick: Counter) -> list[Told]:
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        asked = requests(SHAPE, MODEL)
        return list(await asyncio.gather(*(tell(client, path, body, tick) for path, body in asked)))


@pytest.fixture(scope="module")
def whole(parts: Parts) -> list[Told]:
    """What the streams say when nothing happens."""
    told = asyncio.run(all_told(parts.urls[0], Counter(-1, lambda: None)))
    assert [one.error for one in told] == [None] * len(told)
    assert len({one.worker for one in told}) == 2
    return told


def assert_unnoticed(told: list[Told], whole: list[Told]) -> None:
    assert [one.error for one in told] == [None] * len(told)
    for one, other in zip(told, whole, strict=True):
        assert one.same_as(other)


def continuations(parts: Parts) -> float:
    return sum(metric(url, "pando_gateway_continuations_total") for url in parts.urls)


def metric(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def restart(parts: Parts, name: str) -> None:
    parts.start_worker(name)
    parts.wait_until_linked()


def busiest(parts: Parts, url: str) -> str:
    """The worker that has most of a gateway's streams now."""
    leases = {
        name: metric(url, f'pando_gateway_worker_leases{{worker="{name}"}}')
        for name in parts.workers
    }
    return max(leases, key=lambda name: leases[name])


@pytest.mark.parametrize("gateway", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_worker(parts: Parts, whole: list[Told], gateway: int) -> None:
    url, lost = parts.urls[gateway], []

    def kill() -> None:
        lost.append(busiest(parts, url))
        parts.kill(lost[0])

    before = continuations(parts)
    told = asyncio.run(all_told(url, Counter(60, kill)))
    restart(parts, lost[0])
    assert_unnoticed(told, whole)
    assert continuations(parts) > before


def test_a_worker_that_is_told_to_leave_hands_back_what_it_cannot_finish(
    parts: Parts, whole: list[Told]
) -> None:
    url, lost = parts.urls[0], []

    def leave() -> None:
        lost.append(busiest(parts, url))
        parts.terminate(lost[0])

    before = continuations(parts)
    told = asyncio.run(all_told(url, Counter(60, leave)))
    restart(parts, lost[0])
    assert_unnoticed(told, whole)
    assert continuations(parts) > before


def test_a_worker_that_hangs(parts: Parts, whole: list[Told]) -> None:
    url, stopped = parts.urls[0], []

    def stop() -> None:
        stopped.append(parts.workers[busiest(parts, url)].process.pid)
        os.kill(stopped[0], signal.SIGSTOP)

    before = continuations(parts)
    try:
        told = asyncio.run(all_told(url, Counter(60, stop)))
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    parts.wait_until_linked()
    assert_unnoticed(told, whole)
    assert continuations(parts) > before


@pytest.mark.slow
def test_a_rolling_restart_under_load(parts: Parts, whole: list[Told]) -> None:
    rounds: list[list[Told]] = []
    done = threading.Event()

    def clients() -> None:
        while not done.is_set():
            rounds.append(asyncio.run(all_told(parts.urls[1], Counter(-1, lambda: None))))

    # The workers are this thread's children: the kernel ends them with the thread that made them.
    thread = threading.Thread(target=clients)
    thread.start()
    try:
        for name in ("worker-0", "worker-1"):
            parts.terminate(name)
            restart(parts, name)
    finally:
        done.set()
        thread.join()
    assert rounds
    for told in rounds:
        assert_unnoticed(told, whole)


def test_nothing_is_left(parts: Parts) -> None:
    for url in parts.urls:
        assert metric(url, "pando_gateway_requests_in_flight") == 0
        assert metric(url, "pando_gateway_waiting_requests") == 0
        assert metric(url, "pando_gateway_worker_used_pages") == 0
        accepted = metric(url, "pando_gateway_accepted_requests_total")
        assert accepted == metric(url, "pando_gateway_ended_requests_total")


class Wire:
    """A network between a gateway and a worker that can be cut without a word."""

    def __init__(self, target: int):
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._intact = threading.Event()
        self._intact.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._intact.clear()

    def mend(self) -> None:
        self._intact.set()

    def close(self) -> None:
        self._intact.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._intact.wait()
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        source.close()


@contextmanager
def gateway_over(wire: Wire, direct: str) -> Iterator[str]:
    """A gateway that reaches worker-0 through the wire and worker-1 directly."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "gateway", "--config", "/dev/stdin", "--port", str(port)]
    command += ["--worker", f"worker-0=127.0.0.1:{wire.port}", "--worker", f"worker-1={direct}"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(SETTINGS.encode())
    process.stdin.close()
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: linked(url) == 2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def linked(url: str) -> int:
    try:
        return int(httpx.get(f"{url}/ready").json()["workers"])
    except (httpx.TransportError, KeyError):
        return 0


def eventually(condition: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(600):
        if condition():
            return
        waited.wait(0.1)
    raise AssertionError("it never came to hold")


def test_a_network_that_swallows_everything(parts: Parts, whole: list[Told]) -> None:
    wire = Wire(int(parts.address("worker-0").rpartition(":")[2]))
    with gateway_over(wire, parts.address("worker-1")) as url:
        told = asyncio.run(all_told(url, Counter(60, wire.cut)))
        assert_unnoticed(told, whole)
        eventually(lambda: linked(url) == 1)
        assert linked(url) == 1
        wire.mend()
        eventually(lambda: linked(url) == 2)
    wire.close()
