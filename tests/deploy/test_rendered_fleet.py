"""A gateway and a worker as the chart starts them: its files, arguments, probes and test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from redis import Redis

from pando.ports import free_ports
from tests.deploy.charting import CHART, NAMESPACE, Manifest, Values, objects, read
from tests.deploy.test_chart import files, of_kind
from tests.gateway.store.redis_server import RedisServer

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


def open_door(port: int) -> bool:
    """What the kubelet's TCP probe asks."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def sign(manifests: list[Manifest], folder: Path) -> None:
    """The Secrets that cert-manager would make of the Certificates, as folders by component."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(
        folder, "req", "-x509", *curve, "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt"
    )
    usages = {"server auth": "serverAuth", "client auth": "clientAuth"}
    for certificate in of_kind(manifests, "Certificate"):
        spec = certificate["spec"]
        own = folder / certificate["metadata"]["labels"]["app.kubernetes.io/component"]
        own.mkdir()
        names = ",".join(f"DNS:{name}" for name in spec["dnsNames"])
        use = ",".join(usages[it] for it in spec["usages"])
        (own / "extensions").write_text(f"subjectAltName={names}\nextendedKeyUsage={use}\n")
        openssl(own, "req", *curve, "-subj", "/", "-keyout", "tls.key", "-out", "tls.csr")
        signer = ["-CA", "../ca.crt", "-CAkey", "../ca.key", "-CAcreateserial"]
        openssl(
            own,
            *("x509", "-req", *signer, "-extfile", "extensions"),
            *("-in", "tls.csr", "-out", "tls.crt"),
        )
        shutil.copy(folder / "ca.crt", own)


def lay(manifests: list[Manifest], folder: Path) -> None:
    """The rendered files, with certificates where the test has them."""
    for component in ("gateway", "worker"):
        [text] = files(manifests, f"{component}.yaml").values()
        text = text.replace("/etc/pando/tls", str(folder / component))
        (folder / f"{component}.yaml").write_text(text)


TLS = {"tls": {"enabled": True, "certManager": {"issuer": {"name": "ca"}}}}


@pytest.mark.parametrize("more", [{}, TLS], ids=["in the clear", "encrypted"])
def test_a_chat_through_the_rendered_files(
    more: Values, smollm2_folder: Path, tmp_path: Path
) -> None:
    manifests = objects({**read(CHART / "values-cpu.yaml"), **more})
    sign(manifests, tmp_path)
    lay(manifests, tmp_path)
    probe = open_door if more else serving
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
        eventually(lambda: probe(grpc_port), works)
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


def test_redis_takes_the_arguments_that_it_is_given(tmp_path: Path) -> None:
    manifests = objects({"redis": {"mode": "own", "own": {"passwordSecret": "redis"}}})
    [redis] = [
        it for it in of_kind(manifests, "StatefulSet") if it["metadata"]["name"].endswith("redis")
    ]
    [container] = redis["spec"]["template"]["spec"]["containers"]
    given = [word.replace("$(REDISCLI_AUTH)", "secret") for word in container["args"]]
    given[given.index("--dir") + 1] = str(tmp_path)
    server = RedisServer(tmp_path)
    server.start(*given)
    try:
        assert server.command("PING").startswith("-NOAUTH")
        url = server.url.replace("//", "//:secret@")
        with Redis.from_url(url) as client:
            assert client.ping()
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    finally:
        server.stop()
    assert (tmp_path / "appendonlydir").is_dir()
    [deployment] = of_kind(manifests, "Deployment")
    [gateway] = deployment["spec"]["template"]["spec"]["containers"]
    by_name = {it["name"]: it for it in gateway["env"]}
    assert list(by_name) == ["REDIS_PASSWORD", "PANDO_REDIS_URL"]
    [service] = [it for it in of_kind(manifests, "Service") if "redis" in it["metadata"]["name"]]
    host = f"{service['metadata']['name']}.{NAMESPACE}.svc"
    assert by_name["PANDO_REDIS_URL"]["value"] == f"redis://:$(REDIS_PASSWORD)@{host}:6379/0"
