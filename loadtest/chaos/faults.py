"""What is done to the fleet. A fault is over when its coroutine returns; who ended starts again."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from loadtest.chaos.fleet import SILENCE_S, Fleet, ended
from loadtest.chaos.members import Member
from loadtest.chaos.wires import Wire
from pando.children import dying_with_us

# Long enough to be noticed, short enough that many faults fit into a run.
_HOLD_S = 2 * SILENCE_S
_HOUR_S = 3600
_STORM = """
import os, sys
block = os.urandom(1 << 22)
with open(sys.argv[1], "wb") as file:
    while True:
        file.seek(0)
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """On what a fault works. outage: a context in which a gateway takes no requests."""

    fleet: Fleet
    rng: random.Random
    outage: Callable[[str], AbstractContextManager[None]]

    def worker(self) -> Member:
        """Any worker."""
        return self.rng.choice(list(self.fleet.workers.values()))

    def wire(self) -> Wire:
        """Any wire."""
        return self.rng.choice(list(self.fleet.wires.values()))


async def kill_worker(scene: Scene) -> str:
    """kill -9; it comes back."""
    member = scene.worker()
    await ended(member, signal.SIGKILL)
    return member.name


async def leave_worker(scene: Scene) -> str:
    """SIGTERM; it comes back."""
    member = scene.worker()
    await ended(member, signal.SIGTERM)
    return member.name


async def pause_worker(scene: Scene) -> str:
    """SIGSTOP for longer than a link may be silent, then SIGCONT."""
    member = scene.worker()
    return await _paused(member, _HOLD_S)


async def pause_gateway(scene: Scene) -> str:
    """SIGSTOP for longer than a lease in Redis lasts, then SIGCONT."""
    return await _paused(scene.rng.choice(list(scene.fleet.gateways.values())), 8.0)


async def _paused(member: Member, seconds: float) -> str:
    member.tell(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    member.tell(signal.SIGCONT)
    return member.name


async def cut_link(scene: Scene) -> str:
    """The connections of a link are reset, three times, then it can't be made for a while."""
    wire = scene.wire()
    for _ in range(3):
        wire.cut()
        await asyncio.sleep(scene.rng.uniform(0.2, 1.5))
    wire.refuse()
    await asyncio.sleep(_HOLD_S / 2)
    wire.mend()
    return ""


async def swallow(scene: Scene) -> str:
    """A network that takes everything and delivers nothing."""
    wire = scene.wire()
    wire.swallow()
    await asyncio.sleep(_HOLD_S)
    wire.mend()
    return ""


async def full_log_worker(scene: Scene) -> str:
    """Its log goes to a disk that takes nothing: the pipe is full."""
    return await _unread(scene.worker(), _HOLD_S)


async def full_log_gateway(scene: Scene) -> str:
    """The same for a gateway."""
    return await _unread(scene.rng.choice(list(scene.fleet.gateways.values())), _HOLD_S)


async def _unread(member: Member, seconds: float) -> str:
    member.hold_log()
    await asyncio.sleep(seconds)
    member.take_log()
    return member.name


async def fsync_storm(scene: Scene) -> str:
    """Neighbours write and sync on the disk to which Redis appends, syncing every write."""
    files = [scene.fleet.folder / f"storm-{number}" for number in range(2)]
    storms = [
        await asyncio.create_subprocess_exec(
            *dying_with_us([sys.executable, "-c", _STORM, str(path)])
        )
        for path in files
    ]
    try:
        await asyncio.sleep(_HOLD_S)
    finally:
        for storm in storms:
            with suppress(ProcessLookupError):  # a full disk ends it before
                storm.kill()
            await storm.wait()
        for path in files:
            path.unlink(missing_ok=True)
    return "redis"


async def full_memory(scene: Scene) -> str:
    """A worker that has just begun gets no more address space for a while."""
    member = scene.worker()
    await ended(member, signal.SIGKILL)
    await scene.fleet.calm()
    size = _address_space(member.pid)
    before = resource.prlimit(member.pid, resource.RLIMIT_AS)
    resource.prlimit(member.pid, resource.RLIMIT_AS, (size, before[1]))
    await asyncio.sleep(2 * _HOLD_S)
    if member.alive:
        resource.prlimit(member.pid, resource.RLIMIT_AS, before)
        return f"{member.name}, which lived"
    return f"{member.name}, which ended"


async def jump_clock(scene: Scene) -> str:
    """The wall clock jumps an hour ahead, and back again."""
    name = scene.rng.choice(scene.fleet.jumpy)
    for seconds in (_HOUR_S, 0, -_HOUR_S, 0):
        scene.fleet.turn_clock(name, seconds)
        await asyncio.sleep(_HOLD_S / 2)
    return name


async def kill_redis(scene: Scene) -> str:
    """kill -9, and it stays away for a while; what it had is in its append-only file."""
    await ended(scene.fleet.redis, signal.SIGKILL)
    await asyncio.sleep(_HOLD_S / 2)
    return "redis"


async def pause_redis(scene: Scene) -> str:
    """It takes connections and commands, and says nothing."""
    return await _paused(scene.fleet.redis, _HOLD_S / 2)


async def kill_gateway(scene: Scene) -> str:
    """kill -9; its clients see their connections end, and ask the other one."""
    return await _gateway_gone(scene, signal.SIGKILL)


async def leave_gateway(scene: Scene) -> str:
    """SIGTERM: what runs ends well; new connections are not taken."""
    return await _gateway_gone(scene, signal.SIGTERM)


async def _gateway_gone(scene: Scene, number: signal.Signals) -> str:
    member = scene.rng.choice(list(scene.fleet.gateways.values()))
    with scene.outage(member.name):
        await ended(member, number)
        await scene.fleet.calm()
    return member.name


def _address_space(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize()


Fault = Callable[[Scene], Awaitable[str]]
FAULTS: Mapping[str, Fault] = {
    "worker killed": kill_worker,
    "worker told to leave": leave_worker,
    "worker stopped": pause_worker,
    "link cut": cut_link,
    "link swallows": swallow,
    "slow disk: a worker's log": full_log_worker,
    "slow disk: a gateway's log": full_log_gateway,
    "slow disk: Redis": fsync_storm,
    "memory full": full_memory,
    "clock jumps": jump_clock,
    "Redis killed": kill_redis,
    "Redis stopped": pause_redis,
    "gateway stopped": pause_gateway,
    "gateway killed": kill_gateway,
    "gateway told to leave": leave_gateway,
}
