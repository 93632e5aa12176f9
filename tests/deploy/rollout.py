"""The chart's rollouts under load, on this machine: real processes, probes and pauses as rendered.

    workers   last to first: deleted, started again under the name; the next when it is available
    gateways  one more first; when it is available, an old one is deleted
    scale     a worker more, which gets its share; then it is deleted

Addresses are told to the gateways; that the name of the headless Service gives them is DNS's part.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from openai import AsyncOpenAI, OpenAIError

from pando.ports import free_ports
from tests.deploy.charting import CHART, Manifest, Values, objects, read
from tests.deploy.front import Front
from tests.deploy.pods import Pod, Workload

# How long until every node knows of a changed endpoint.
DELAY_S = 1.0
CLIENTS, PROMPTS, NEW_TOKENS = 6, 8, 96
# What this machine lacks of a cluster: memory for the chart's pools.
SMALL = ("--kv-memory", "128MiB", "--threads", "1")
MODEL = "smollm2-135m-instruct"
VALUES: Values = {**read(CHART / "values-cpu.yaml"), "gateway": {"replicas": 2}}


@dataclass(slots=True)
class Load:
    """Clients of the official SDK that stream on and on. errors: sentences. workers: who began.

    fresh: prompts that nobody holds, in place of those that come again and again.
    """

    port: int
    ended: int = 0
    errors: list[str] = field(default_factory=list)
    workers: Counter[str] = field(default_factory=Counter)
    answers: dict[int, str] = field(default_factory=dict)
    fresh: bool = False
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Ends when `stop` is set and everybody has their last answer."""
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._client(number))

    async def _client(self, number: int) -> None:
        url = f"http://127.0.0.1:{self.port}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=300) as client:
            for turn in count(number, CLIENTS):
                if self.stop.is_set():
                    return
                try:
                    await self._ask(client, turn + PROMPTS if self.fresh else turn % PROMPTS)
                except (OpenAIError, AssertionError) as error:
                    self.errors.append(f"{error!r} from {error.__cause__!r}")
                self.ended += 1

    async def _ask(self, client: AsyncOpenAI, prompt: int) -> None:
        """One whole stream, which says what the prompt's first one said."""
        asked = await client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=[{"role": "user", "content": f"Tell me story {prompt} of the old tree."}],
            temperature=0,
            max_tokens=NEW_TOKENS,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        text, finish = "", None
        async for chunk in asked.parse():
            text += chunk.choices[0].delta.content or ""
            finish = chunk.choices[0].finish_reason or finish
        self.workers[asked.headers.get("x-pando-worker", "")] += 1
        assert finish == "length", f"a stream ended with {finish}"
        assert self.answers.setdefault(prompt, text) == text, f"prompt {prompt} says something else"

    async def more(self, requests: int) -> None:
        """So many more have ended."""
        goal = self.ended + requests
        while self.ended < goal:  # noqa: ASYNC110 (everybody's, not one event's)
            await asyncio.sleep(0.1)


@dataclass(slots=True)
class Cluster:
    """Pods of the two workloads behind a front. Workers' addresses are known from the start."""

    folder: Path
    workers: Workload
    gateways: Workload
    front: Front
    worker_ports: dict[str, int]
    pods: dict[str, Pod] = field(default_factory=dict)
    gone: list[Pod] = field(default_factory=list)
    _numbers: Callable[[], int] = field(default_factory=lambda: count().__next__)

    def start_worker(self, name: str) -> Pod:
        """A pod of that name begins."""
        port, [metrics] = self.worker_ports[name], free_ports(1)
        command = ["worker", *self._arguments(self.workers, name), *SMALL]
        command += ["--listen", f"127.0.0.1:{port}", "--metrics-port", str(metrics)]
        ports = {"grpc": port, "metrics": metrics}
        return self._start(Pod(name, self.workers, command, ports, self._log(name), _unseen))

    def start_gateway(self) -> Pod:
        """A pod of a name of its own begins; the front hears when it is ready."""
        name, [port] = f"{self.gateways.name}-{self._numbers()}", free_ports(1)
        command = ["gateway", *self._arguments(self.gateways, name)]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        for worker, at in self.worker_ports.items():
            command += ["--worker", f"{worker}=127.0.0.1:{at}"]

        def changed(pod: Pod, ready: bool) -> None:
            self.front.change(pod.ports["http"], ready=ready)

        return self._start(
            Pod(name, self.gateways, command, {"http": port}, self._log(name), changed)
        )

    async def delete(self, pod: Pod) -> None:
        """It is gone, and is remembered."""
        del self.pods[pod.name]
        self.gone.append(pod)
        await pod.delete()

    def of(self, workload: Workload) -> list[Pod]:
        """The workload's pods, in the order in which they began."""
        return [pod for pod in self.pods.values() if pod.workload is workload]

    def _start(self, pod: Pod) -> Pod:
        pod.command = [sys.executable, "-m", *pod.command]
        self.pods[pod.name] = pod
        pod.start()
        return pod

    def _arguments(self, workload: Workload, pod: str) -> list[str]:
        given = [word.replace("$(POD_NAME)", pod) for word in workload.arguments]
        return [
            str(self.folder / Path(word).name) if word.startswith("/etc/") else word
            for word in given
        ]

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def _unseen(pod: Pod, ready: bool) -> None:
    """Gateways see for themselves whether a worker answers."""


async def roll_workers(cluster: Cluster) -> None:
    """A StatefulSet's update: the last first, each when the one before is available."""
    for pod in reversed(cluster.of(cluster.workers)):
        await cluster.delete(pod)
        await cluster.start_worker(pod.name).until_available()


async def roll_gateways(cluster: Cluster) -> None:
    """A Deployment's update with maxSurge 1 and maxUnavailable 0."""
    workload = cluster.gateways
    assert (workload.max_surge, workload.max_unavailable) == (1, 0), "plays no other strategy"
    for pod in cluster.of(workload):
        await cluster.start_gateway().until_available()
        await cluster.delete(pod)


async def scale_out(cluster: Cluster, load: Load) -> None:
    """One worker more: it is asked too."""
    name = list(cluster.worker_ports)[-1]
    await cluster.start_worker(name).until_available()
    load.fresh, before = True, load.workers[name]
    await load.more(4 * CLIENTS)
    if load.workers[name] == before:
        load.errors.append("the new worker is not asked")


async def scale_in(cluster: Cluster, load: Load) -> None:
    """It leaves again."""
    await cluster.delete(cluster.pods[list(cluster.worker_ports)[-1]])
    await load.more(CLIENTS)


@dataclass(frozen=True, slots=True)
class Rolled:
    """What a run found. killed: pods that outstayed their grace. restarted: by a liveness probe."""

    requests: int
    errors: list[str]
    killed: list[str]
    restarted: list[str]

    @property
    def is_good(self) -> bool:
        """Whether nobody noticed."""
        return not (self.errors or self.killed or self.restarted)


async def roll(say: Callable[[str], None]) -> Rolled:
    """Everything, one after the other."""
    manifests = objects(VALUES)
    with tempfile.TemporaryDirectory(prefix="pando-rollout-") as name:
        cluster = await _laid(manifests, Path(name))
        load = Load(cluster.front.port)
        try:
            for worker in list(cluster.worker_ports)[:-1]:
                cluster.start_worker(worker)
            for _ in range(cluster.gateways.replicas):
                cluster.start_gateway()
            await asyncio.gather(*(pod.until_available() for pod in cluster.pods.values()))
            await asyncio.sleep(2 * DELAY_S)
            clients = asyncio.create_task(load.run())
            await load.more(2 * PROMPTS)
            for what, step in (
                ("workers", roll_workers(cluster)),
                ("gateways", roll_gateways(cluster)),
                ("scaled out", scale_out(cluster, load)),
                ("scaled in", scale_in(cluster, load)),
            ):
                await step
                say(f"{what}: {load.ended} requests ended, {len(load.errors)} errors")
                say(f"    by worker: {dict(load.workers)}")
            load.stop.set()
            await clients
        finally:
            for pod in cluster.pods.values():
                pod.end()
            await cluster.front.close()
    every = [*cluster.gone, *cluster.pods.values()]
    return Rolled(
        load.ended,
        load.errors,
        [pod.name for pod in every if pod.killed],
        [pod.name for pod in every if pod.restarts],
    )


async def _laid(manifests: list[Manifest], folder: Path) -> Cluster:
    """The rendered files are in the folder."""
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap":
            for name, text in manifest["data"].items():
                if name in ("gateway.yaml", "worker.yaml"):
                    (folder / name).write_text(text)
    [workers] = [Workload.read(it) for it in manifests if it["kind"] == "StatefulSet"]
    [gateways] = [Workload.read(it) for it in manifests if it["kind"] == "Deployment"]
    names = [f"{workers.name}-{number}" for number in range(workers.replicas + 1)]
    front = Front(DELAY_S)
    await front.open()
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    return Cluster(folder, workers, gateways, front, ports)


def main() -> int:
    """`python -m tests.deploy.rollout`: prints the steps and one last line; the exit status."""
    rolled = asyncio.run(roll(partial(print, flush=True)))
    for what in ("errors", "killed", "restarted"):
        for one in getattr(rolled, what):
            print(f"{what}: {one}")
    print(f"rollout: requests={rolled.requests} errors={len(rolled.errors)}", end=" ")
    print(f"killed={len(rolled.killed)} restarted={len(rolled.restarted)}")
    return 0 if rolled.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
