"""Rollouts of the chart under load; the parts that play a cluster, by themselves, and all of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pando.ports import free_ports
from tests.deploy.charting import objects
from tests.deploy.front import Front
from tests.deploy.pods import Pod, Probe, Workload
from tests.deploy.rollout import VALUES, roll

# Serves HTTP at once, fails its probes when told to, and outstays SIGTERM when told to.
_SERVER = """
import http.server, signal, sys
from pathlib import Path

folder = Path(sys.argv[2])

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ill = (folder / "ill").exists()
        self.send_response(503 if ill else 200)
        self.end_headers()

    def log_message(self, *args):
        pass

def leave(*_):
    (folder / "told").touch()
    if not (folder / "stubborn").exists():
        sys.exit(0)

signal.signal(signal.SIGTERM, leave)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def workload(**changes: Any) -> Workload:
    probe = Probe("http", "/", 0.02, 5.0, 2)
    kinds = ("startupProbe", "readinessProbe", "livenessProbe")
    settings: dict[str, Any] = {
        "name": "web",
        "replicas": 1,
        "arguments": (),
        "probes": dict.fromkeys(kinds, probe) | {"startupProbe": Probe("http", "/", 0.1, 5, 99)},
        "pre_stop_s": 0.0,
        "grace_s": 20.0,
        "min_ready_s": 0.0,
        "max_surge": 1,
        "max_unavailable": 0,
    }
    return Workload(**settings | changes)


class Kubelet:
    """A pod in a folder of its own, and what the endpoints heard of it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.heard: list[bool] = []

    def start(self, **changes: Any) -> Pod:
        [port] = free_ports(1)
        command = [sys.executable, "-c", _SERVER, str(port), str(self.folder)]
        pod = Pod(
            "web-0",
            workload(**changes),
            command,
            {"http": port},
            self.folder / "log",
            lambda _, ready: self.heard.append(ready),
        )
        pod.start()
        return pod

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 (files and lists)
                await asyncio.sleep(0.01)


@pytest.fixture
def kubelet(tmp_path: Path) -> Kubelet:
    return Kubelet(tmp_path)


def test_workloads_are_read_as_they_are_rendered() -> None:
    manifests = objects({"gateway": {"preStopSeconds": 7, "config": {"shutdown_s": 20}}})
    [gateways] = [Workload.read(it) for it in manifests if it["kind"] == "Deployment"]
    assert (gateways.pre_stop_s, gateways.grace_s) == (7, 42)
    assert (gateways.max_surge, gateways.max_unavailable) == (1, 0)
    assert gateways.probes["readinessProbe"].path == "/ready"
    [workers] = [Workload.read(it) for it in manifests if it["kind"] == "StatefulSet"]
    assert (workers.min_ready_s, workers.pre_stop_s, workers.grace_s) == (10, 0, 45)
    assert workers.probes["readinessProbe"] == Probe("grpc", None, 5, 5, 3)
    assert workers.probes["livenessProbe"].port == "metrics"


async def test_a_pod_is_an_endpoint_while_it_is_ready(kubelet: Kubelet) -> None:
    pod = kubelet.start()
    await pod.until_available()
    (kubelet.folder / "ill").touch()
    await kubelet.until(lambda: kubelet.heard == [True, False])
    await kubelet.until(lambda: pod.restarts > 0)
    (kubelet.folder / "ill").unlink()
    await kubelet.until(lambda: kubelet.heard == [True, False, True])
    await pod.delete()
    assert kubelet.heard == [True, False, True, False]
    assert not pod.killed


async def test_a_deleted_pod_leaves_the_endpoints_before_it_is_told(kubelet: Kubelet) -> None:
    pod = kubelet.start(pre_stop_s=0.3)
    await pod.until_available()
    deleting = asyncio.create_task(pod.delete())
    await kubelet.until(lambda: kubelet.heard == [True, False])
    assert not (kubelet.folder / "told").exists()
    await deleting
    assert (kubelet.folder / "told").exists()


async def test_a_pod_that_outstays_its_grace_is_killed(kubelet: Kubelet) -> None:
    (kubelet.folder / "stubborn").touch()
    pod = kubelet.start(grace_s=0.3)
    await pod.until_available()
    await pod.delete()
    assert pod.killed


@pytest.fixture
async def servers() -> AsyncIterator[dict[bytes, int]]:
    """Two that say their letter and keep the connection, by letter."""
    made, ports = [], {}
    for letter in (b"a", b"b"):

        async def say(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, letter: bytes = letter
        ) -> None:
            while await reader.read(1):
                writer.write(letter)
            writer.close()

        made.append(await asyncio.start_server(say, "127.0.0.1", 0))
        ports[letter] = int(made[-1].sockets[0].getsockname()[1])
    yield ports
    for server in made:
        server.close()


async def test_a_front_sends_new_connections_to_ready_endpoints_and_keeps_old_ones(
    servers: dict[bytes, int],
) -> None:
    front = Front(0.0)
    await front.open()

    async def said(line: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
        line[1].write(b"?")
        return await line[0].readexactly(1)

    for port in servers.values():
        front.change(port, ready=True)
    await asyncio.sleep(0.05)
    lines = [await asyncio.open_connection("127.0.0.1", front.port) for _ in range(4)]
    assert sorted([await said(line) for line in lines]) == [b"a", b"a", b"b", b"b"]
    front.change(servers[b"a"], ready=False)
    await asyncio.sleep(0.05)
    new = [await asyncio.open_connection("127.0.0.1", front.port) for _ in range(4)]
    assert [await said(line) for line in new] == [b"b"] * 4
    assert sorted([await said(line) for line in lines]) == [b"a", b"a", b"b", b"b"]
    for _, writer in [*lines, *new]:
        writer.close()
    await front.close()


@pytest.mark.slow
def test_no_client_notices_a_rollout_or_a_change_of_scale(smollm2_folder: Path) -> None:
    assert VALUES["gateway"]["replicas"] == 2
    rolled = asyncio.run(roll(print))
    assert rolled.errors == []
    assert rolled.killed == []
    assert rolled.restarted == []
