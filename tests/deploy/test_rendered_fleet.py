"""A gateway and a worker as the chart starts them: its files, arguments, probes and test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pando.ports import free_ports
from tests.deploy.charting import CHART as FOLDER
from tests.deploy.charting import Manifest, objects, read
from tests.deploy.test_chart import files, of_kind

ROOT = Path(__file__).parents[2]
# What a test machine lacks of a cluster: its names, its ports and its memory.
SMALL = ["--kv-memory", "128MiB", "--threads", "1"]


@contextmanager
def running(log: Path, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=ROOT, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(30) in (0, -signal.SIGTERM), log.read_text()


def eventually(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "it ended"
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.1)


def arguments(manifest: Manifest, pod: str, mounts: Path) -> list[str]:
    """A container's arguments, with the pod's name, and files where the test has them."""
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    given = [word.replace("$(POD_NAME)", pod) for word in container["args"]]
    return [str(mounts / Path(word).name) if word.startswith("/etc/") else word for word in given]


def serving(port: int) -> bool:
    """What the kubelet's gRPC probe asks."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def linked(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_a_chat_through_the_rendered_files(smollm2_folder: Path, tmp_path: Path) -> None:
    manifests = objects(read(FOLDER / "values-cpu.yaml"))
    for name in ("gateway.yaml", "worker.yaml"):
        [text] = files(manifests, name).values()
        (tmp_path / name).write_text(text)
    [stateful] = of_kind(manifests, "StatefulSet")
    [deployment] = of_kind(manifests, "Deployment")
    [pod] = of_kind(manifests, "Pod")
    name = f"{stateful['metadata']['name']}-0"
    grpc_port, metrics_port, http_port = free_ports(3)
    worker = ["worker", *arguments(stateful, name, tmp_path), *SMALL]
    worker += ["--listen", f"127.0.0.1:{grpc_port}", "--metrics-port", str(metrics_port)]
    gateway = ["gateway", *arguments(deployment, "", tmp_path)]
    gateway += ["--host", "127.0.0.1", "--port", str(http_port)]
    gateway += ["--worker", f"{name}=127.0.0.1:{grpc_port}"]
    url = f"http://127.0.0.1:{http_port}"
    with (
        running(tmp_path / "worker.log", worker) as works,
        running(tmp_path / "gateway.log", gateway) as gates,
    ):
        eventually(lambda: serving(grpc_port), works)
        assert httpx.get(f"http://127.0.0.1:{metrics_port}/metrics").status_code == 200
        eventually(lambda: linked(url), gates)
        answer = httpx.post(
            f"{url}/v1/chat/completions",
            json={
                "model": "smollm2-135m-instruct",
                "messages": [{"role": "user", "content": "What is the capital of France?"}],
                "temperature": 0,
                "max_tokens": 12,
            },
            timeout=60,
        )
        assert "Paris" in answer.json()["choices"][0]["message"]["content"]
        assert answer.headers["x-pando-worker"] == name
        [test] = pod["spec"]["containers"]
        said = subprocess.run(
            [sys.executable, *test["command"][1:], *test["args"]],
            env={**os.environ, "URL": url},
            check=True,
            capture_output=True,
            text=True,
        )
        assert said.stdout == "1 workers are linked\n"
    # The name of the headless Service means nothing here, and that ended nothing.
    assert "discovery_failed" in (tmp_path / "gateway.log").read_text()
