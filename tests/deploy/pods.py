"""What a kubelet does with a rendered pod, on this machine: probes, preStop, SIGTERM, the grace.

starting ── startup probe passes ──▶ started ── readiness passes ──▶ ready
deleted  ── out of the endpoints, preStop, SIGTERM, the rest of the grace, SIGKILL ──▶ gone
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pando.children import dying_with_us
from pando.up import ROOT
from tests.deploy.charting import Manifest


@dataclass(frozen=True, slots=True)
class Probe:
    """How the kubelet asks. path: of HTTP; None asks by gRPC health. port: its name in the pod."""

    port: str
    path: str | None
    period_s: float
    timeout_s: float
    failures: int

    @classmethod
    def read(cls, probe: dict[str, Any]) -> Probe:
        """What a manifest says."""
        asks = probe.get("httpGet", {})
        return cls(
            port=asks.get("port", "grpc"),
            path=asks.get("path"),
            period_s=probe["periodSeconds"],
            timeout_s=probe["timeoutSeconds"],
            failures=probe["failureThreshold"],
        )

    async def passes(self, ports: dict[str, int]) -> bool:
        """Whether it does now."""
        address = f"127.0.0.1:{ports[self.port]}"
        if self.path is None:
            return await self._serves(address)
        async with httpx.AsyncClient(timeout=self.timeout_s) as client:
            try:
                answer = await client.get(f"http://{address}{self.path}")
            except httpx.HTTPError:
                return False
            return answer.is_success

    async def _serves(self, address: str) -> bool:
        async with grpc.aio.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                request = health_pb2.HealthCheckRequest()
                answer = await stub.Check(request, timeout=self.timeout_s)
            except grpc.RpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


@dataclass(frozen=True, slots=True)
class Workload:
    """What a Deployment or StatefulSet says of its pods."""

    name: str
    replicas: int
    arguments: tuple[str, ...]
    probes: dict[str, Probe]
    pre_stop_s: float
    grace_s: float
    min_ready_s: float
    max_surge: int
    max_unavailable: int

    @classmethod
    def read(cls, manifest: Manifest) -> Workload:
        """Raises KeyError where the manifest has none of what a rollout goes by."""
        spec = manifest["spec"]
        pod = spec["template"]["spec"]
        [container] = pod["containers"]
        kinds = ("startupProbe", "readinessProbe", "livenessProbe")
        strategy = spec.get("strategy", {}).get("rollingUpdate", {})
        stop = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        return cls(
            name=manifest["metadata"]["name"],
            replicas=spec["replicas"],
            arguments=tuple(container["args"]),
            probes={kind: Probe.read(container[kind]) for kind in kinds},
            pre_stop_s=stop.get("seconds", 0),
            grace_s=pod["terminationGracePeriodSeconds"],
            min_ready_s=spec.get("minReadySeconds", 0),
            max_surge=strategy.get("maxSurge", 0),
            max_unavailable=strategy.get("maxUnavailable", 1),
        )


@dataclass(slots=True)
class Pod:
    """One pod and its container. on_ready: told when it comes into the endpoints, or leaves."""

    name: str
    workload: Workload
    command: Sequence[str]
    ports: dict[str, int]
    log: Path
    on_ready: Callable[[Pod, bool], None]
    restarts: int = 0
    killed: bool = False
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _process: subprocess.Popen[bytes] | None = None
    _probing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The container runs, and is asked how it is."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_us(self.command), cwd=ROOT, stdout=log, stderr=log
            )
        self._probing = asyncio.create_task(self._probe())

    async def until_available(self) -> None:
        """It has been ready for as long as the workload asks."""
        await self.ready.wait()
        await asyncio.sleep(self.workload.min_ready_s)
        assert self.ready.is_set(), f"{self.name} did not stay ready"

    async def delete(self) -> None:
        """It is gone, as the API server's deletion has it."""
        assert self._process is not None
        assert self._probing is not None
        self._probing.cancel()
        with suppress(asyncio.CancelledError):
            await self._probing
        self._set_ready(ready=False)
        await asyncio.sleep(self.workload.pre_stop_s)
        self._process.send_signal(signal.SIGTERM)
        left_s = self.workload.grace_s - self.workload.pre_stop_s
        try:
            await asyncio.to_thread(self._process.wait, left_s)
        except subprocess.TimeoutExpired:
            self.killed = True
            self.end()

    def end(self) -> None:
        """It is killed, if it lives."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def _probe(self) -> None:
        startup = self.workload.probes["startupProbe"]
        for _ in range(startup.failures):
            if await startup.passes(self.ports):
                break
            await asyncio.sleep(startup.period_s)
        else:
            raise AssertionError(f"{self.name} does not start: {self.log.read_text()[-2000:]}")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch("readinessProbe", self._readiness))
            group.create_task(self._watch("livenessProbe", self._liveness))

    async def _watch(self, kind: str, tell: Callable[[bool], None]) -> None:
        """Tells what the probe says, a failure only after so many in a row."""
        probe, failed = self.workload.probes[kind], 0
        while True:
            failed = 0 if await probe.passes(self.ports) else failed + 1
            if not failed or failed >= probe.failures:
                tell(not failed)
            await asyncio.sleep(probe.period_s)

    def _readiness(self, passes: bool) -> None:
        self._set_ready(ready=passes)

    def _liveness(self, passes: bool) -> None:
        """Nothing here may make a kubelet restart a container."""
        self.restarts += not passes

    def _set_ready(self, *, ready: bool) -> None:
        if ready != self.ready.is_set():
            (self.ready.set if ready else self.ready.clear)()
            self.on_ready(self, ready)
