"""A headless service as pods come and go: a real gateway, a real name service, fake workers.

    unshare --net --mount python -m tests.gateway.fleet.dns_play FOLDER

In namespaces of its own, so that port 53 of 127.0.0.1 and /etc/resolv.conf are its own. Prints one
line of JSON per scene; what is wrong raises.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import re
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx

from tests.gateway.fake_worker import FakeWorker
from tests.gateway.fleet.name_server import Mode, NameServer
from tests.gateway.storyteller import story, token, word

SERVICE, DOMAIN, PORT = "pando-workers", "pando.svc.cluster.local", 7001
# As the kubelet writes it, but that it gives up sooner.
RESOLV = f"search {DOMAIN}\nnameserver 127.0.0.1\noptions ndots:5 timeout:1 attempts:1\n"
SETTINGS = f"""
port: 8000
dns: {{name: {SERVICE}, port: {PORT}, refresh_s: 0.1, timeout_s: 0.5}}
link: {{backoff_min_s: 0.05, backoff_max_s: 0.3, silence_s: 60}}
routing: {{policy: {{name: round_robin}}, attempts: 8}}
"""
# netdevice(7)
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
WORDS = 40
# Addresses of nobody: so many that an answer fits no datagram.
NOBODY = [f"127.0.9.{number}" for number in range(1, 33)]


@dataclass
class Play:
    """What is on stage. pods: by name; statuses: of all answers so far."""

    names: NameServer
    gateway: asyncio.subprocess.Process
    http: httpx.AsyncClient
    pods: dict[str, FakeWorker] = field(default_factory=dict)
    statuses: Counter[int | str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)

    async def start(self, name: str, host: str) -> None:
        """A pod runs; nobody is told."""
        worker = FakeWorker(name=name, host=host, port=PORT, script=story(0.002))
        self.pods[name] = await worker.start()

    async def kill(self, name: str) -> None:
        """A pod is gone, with all of its streams."""
        await self.pods.pop(name).stop()

    def name(self, *further: str) -> None:
        """The name stands for the pods that run, and for these addresses."""
        self.names.addresses = [*(pod.host for pod in self.pods.values()), *further]

    async def linked(self) -> set[str]:
        """The workers whose links stand."""
        text = (await self.http.get("/metrics")).text
        return set(re.findall(r'pando_gateway_worker_up\{worker="([^"]*)"\} 1\.0', text))

    async def until_linked(self) -> None:
        """Exactly the pods that run are linked."""
        async with asyncio.timeout(60):
            while await self.linked() != set(self.pods):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def asked(self, times: int, transport: str = "udp") -> None:
        """The gateway has asked so many times more, so that earlier answers are taken up."""
        before = self.names.asked[transport]
        await self.until(lambda: self.names.asked[transport] >= before + times)

    async def ask_for_ever(self, seed: int) -> None:
        """One stream after the other; each must be the whole story."""
        while True:
            seed += 100
            expected = "".join(word(token(seed, 0, place)) for place in range(WORDS))
            body = {
                "model": "tiny",
                "prompt": "Hi",
                "seed": seed,
                "max_tokens": WORDS,
                "stream": True,
            }
            response = await self.http.post("/v1/completions", json=body)
            told = re.findall(r"^data: (\{.*)$", response.text, re.MULTILINE)
            events = [json.loads(line) for line in told]
            text = "".join(one["choices"][0]["text"] for one in events if one.get("choices"))
            self.statuses[response.status_code if text == expected else f"wrong: {text!r}"] += 1


async def pods_come_and_go(play: Play) -> None:
    """Another pod is linked, one that is gone is let go and knocked at no more."""
    await play.start("pod-3", "127.0.0.13")
    play.name()
    await play.until_linked()
    await play.kill("pod-1")
    play.name()
    await play.until_linked()
    await play.asked(6)
    knocks = 0

    def count(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal knocks
        knocks += 1
        writer.close()

    await asyncio.sleep(0.4)  # more than the longest pause between two attempts
    server = await asyncio.start_server(count, "127.0.0.11", PORT)
    await asyncio.sleep(0.5)
    server.close()
    assert knocks == 0, "an address that is gone is still knocked at"


async def a_pod_moves(play: Play) -> None:
    """A pod that comes back has its name at another address."""
    await play.kill("pod-2")
    await play.start("pod-2", "127.0.0.22")
    play.name()
    await play.until_linked()


async def the_name_service_fails(play: Play) -> None:
    """Links stand while it has no answer, and a worker that comes back is linked again."""
    modes: tuple[Mode, ...] = ("nxdomain", "servfail", "silent")
    for number, mode in enumerate(modes):
        told = len(play.log)
        play.names.mode = mode
        await play.until(lambda told=told: "discovery_failed" in "".join(play.log[told:]))  # type: ignore[misc]
        await play.asked(2)
        assert await play.linked() == set(play.pods), mode
        await play.kill("pod-3")
        await play.start("pod-3", "127.0.0.13")
        await play.until_linked()
        play.names.mode = "answers"
        await play.start(f"of-{mode}", f"127.0.3.{number + 1}")
        play.name()
        await play.until_linked()


async def an_answer_is_too_long(play: Play) -> None:
    """What fits no datagram is asked for over TCP; without, what was known holds."""
    await play.start("pod-4", "127.0.0.14")
    play.name(*NOBODY)
    await play.until_linked()
    assert play.names.asked["tcp"]
    play.names.serves_tcp = False
    await play.start("pod-5", "127.0.0.15")
    play.name(*NOBODY)
    await play.asked(4)
    assert await play.linked() == set(play.pods) - {"pod-5"}
    play.names.serves_tcp = True
    await play.until_linked()
    play.name()


async def an_address_of_the_sixth_version(play: Play) -> None:
    """A pod with an AAAA record alone is linked."""
    await play.start("pod-6", "::1")
    play.name()
    await play.until_linked()


async def nothing_was_lost(play: Play) -> None:
    """Every stream was answered whole, by whoever had it last."""
    text = (await play.http.get("/metrics")).text
    outcomes = re.findall(r'pando_gateway_ended_requests_total\{outcome="([^"]*)"\}', text)
    assert set(outcomes) <= {"finished", "client_closed"}, outcomes
    assert set(play.statuses) == {200}, play.statuses
    assert play.statuses[200] > 20


class Scene(Protocol):
    """A part of the play."""

    __name__: str

    def __call__(self, play: Play, /) -> Awaitable[None]: ...


SCENES: Sequence[Scene] = (
    pods_come_and_go,
    a_pod_moves,
    the_name_service_fails,
    an_answer_is_too_long,
    an_address_of_the_sixth_version,
    nothing_was_lost,
)


async def play(folder: Path) -> None:
    """All scenes, one after the other, under load."""
    names = NameServer(f"{SERVICE}.{DOMAIN}")
    await names.start(53)
    gateway = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "--config", str(folder / "gateway.yaml")),
        stderr=asyncio.subprocess.PIPE,
    )
    base = "http://127.0.0.1:8000"
    async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=60) as http:
        stage = Play(names, gateway, http)
        reading = asyncio.create_task(read(stage))
        try:
            await perform(stage)
        finally:
            gateway.terminate()
            await gateway.wait()
            await reading
            for pod in stage.pods.values():
                await pod.stop()
            await names.stop()


async def perform(stage: Play) -> None:
    """Two pods, clients that ask for ever, and one scene after the other."""
    await stage.until(lambda: " listening " in "".join(stage.log))
    for number in (1, 2):
        await stage.start(f"pod-{number}", f"127.0.0.1{number}")
    stage.name()
    await stage.until_linked()
    load = [asyncio.create_task(stage.ask_for_ever(seed)) for seed in range(4)]
    try:
        for scene in SCENES:
            await scene(stage)
            print(json.dumps({"scene": scene.__name__, "answers": stage.statuses}), flush=True)
    finally:
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)


def furnish(folder: Path) -> None:
    """The namespaces have our name server, and lo is up with 127.0.0.0/8 and ::1."""
    (folder / "gateway.yaml").write_text(SETTINGS)
    resolv = folder / "resolv.conf"
    resolv.write_text(RESOLV)
    subprocess.run(["mount", "--bind", resolv, Path("/etc/resolv.conf").resolve()], check=True)
    with socket.socket() as any_one:
        fcntl.ioctl(any_one, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


async def read(stage: Play) -> None:
    """The gateway's log is kept as it comes."""
    assert stage.gateway.stderr is not None
    async for line in stage.gateway.stderr:
        stage.log.append(line.decode())


if __name__ == "__main__":
    furnish(Path(sys.argv[1]))
    asyncio.run(play(Path(sys.argv[1])))
