"""Processes whose log nobody reads, and networks that are cut or swallow."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from loadtest.chaos.faults import Scene, fsync_storm
from loadtest.chaos.fleet import ended
from loadtest.chaos.leftovers import Watch, held_by, value
from loadtest.chaos.members import Member
from loadtest.chaos.wires import Wire
from loadtest.errors import FleetFailed
from loadtest.processes import descendants

_WRITER = """
import sys, time
for number in range(10**9):
    print("line", number, flush=True)
    print(number, file=open(sys.argv[1], "w"), flush=True)
    time.sleep(0.001)
"""
_GREEDY = """
import sys, threading, time
time.sleep(0.2)
files = [open(sys.argv[1], "w") for _ in range(40)]
threads = [threading.Thread(target=time.sleep, args=(60,), daemon=True) for _ in range(40)]
for thread in threads: thread.start()
print("ready", flush=True)
time.sleep(60)
"""
_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""


def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to hold")


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    made = Member("one", [], tmp_path / "one.log")
    yield made
    made.end(signal.SIGKILL)


def test_who_writes_a_log_that_nobody_takes_waits_until_somebody_does(
    member: Member, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    member.command = [sys.executable, "-c", _WRITER, str(seen)]

    def progress() -> str:
        return seen.read_text() if seen.exists() else ""

    member.start()
    eventually(lambda: member.log.exists() and "line 3\n" in member.log.read_text())
    member.hold_log()
    time.sleep(0.2)  # the line under way
    before = progress()
    time.sleep(0.2)
    assert progress() == before
    member.take_log()
    eventually(lambda: progress() not in ("", before))
    text = member.log.read_text()
    assert "(the log is full)" in text
    assert "line" in member.last_lines()


def test_a_member_that_is_started_again_is_another_process(member: Member) -> None:
    member.command = [sys.executable, "-c", "import time; time.sleep(60)"]
    member.start()
    first = member.pid
    member.end(signal.SIGKILL)
    assert not member.alive
    assert held_by(member) is None
    member.start()
    assert member.alive
    assert (member.pid, member.starts) != (first, 1)


async def test_who_does_not_leave_in_time_is_named(member: Member) -> None:
    member.command = [sys.executable, "-c", _STUBBORN]
    member.start()
    await asyncio.to_thread(eventually, lambda: "ready" in member.last_lines())
    with pytest.raises(FleetFailed, match="one runs 0 s after SIGTERM"):
        await ended(member, signal.SIGTERM, 0.2)
    await ended(member, signal.SIGKILL)
    assert not member.alive


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_storm_ends_with_its_fault(is_over: bool, tmp_path: Path) -> None:
    """Also one that has ended by itself, as on a full disk."""
    others = set(descendants(os.getpid()))
    scene = Scene(SimpleNamespace(folder=tmp_path), random.Random(0), nullcontext)  # type: ignore[arg-type]
    storm = asyncio.ensure_future(fsync_storm(scene))
    await asyncio.to_thread(eventually, lambda: len(files(tmp_path)) == 2)
    storms = set(descendants(os.getpid())) - others
    assert len(storms) == 2
    if is_over:
        for pid in storms:
            os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(eventually, lambda: not storms & set(descendants(os.getpid())))
    storm.cancel()
    with pytest.raises(asyncio.CancelledError):
        await storm
    assert not storms & set(descendants(os.getpid()))
    assert files(tmp_path) == []


def test_files_and_threads_that_come_later_are_seen(member: Member, tmp_path: Path) -> None:
    member.command = [sys.executable, "-c", _GREEDY, str(tmp_path / "file")]
    member.start()
    watch = Watch()
    watch.look([member])  # it loads: that says nothing of what it needs
    watch.serves(member)
    assert watch.grown([member]) == []
    watch.look([member])
    assert watch.grown([member]) == []
    eventually(lambda: member.log.exists() and "ready" in member.log.read_text())
    found = watch.grown([member])
    assert len(found) == 2
    assert "files" in found[0]
    assert "threads" in found[1]


def test_a_metric_is_summed_over_its_labels_and_no_other_is() -> None:
    text = 'a_total{by="x"} 2.0\na_total{by="y"} 3.0\na_total_seconds 7.0\nba_total 9.0\n'
    assert value(text, "a_total") == 5.0


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    """To a server that says everything back."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    made = Wire(int(server.sockets[0].getsockname()[1]))
    await made.open()
    yield made
    await made.close()
    server.close()
    await server.wait_closed()


class Line:
    """A connection through the wire."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    @classmethod
    async def through(cls, wire: Wire) -> Line:
        return cls(*await asyncio.open_connection("127.0.0.1", wire.port))

    async def says(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await self.reader.read(100)

    async def is_dead(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(100), 10) == b""
        except ConnectionError:
            return True
        finally:
            self.writer.close()


async def test_a_wire_carries_until_it_is_cut(wire: Wire) -> None:
    line = await Line.through(wire)
    assert await line.says(b"hello") == b"hello"
    wire.cut()
    assert await line.is_dead()
    again = await Line.through(wire)
    assert await again.says(b"hello") == b"hello"
    again.writer.close()


async def test_a_wire_that_refuses_ends_every_connection_until_it_is_mended(wire: Wire) -> None:
    wire.refuse()
    assert await (await Line.through(wire)).is_dead()
    wire.mend()
    line = await Line.through(wire)
    assert await line.says(b"hello") == b"hello"
    line.writer.close()


async def test_what_a_wire_swallows_never_comes_and_the_connection_does_not_outlive_it(
    wire: Wire,
) -> None:
    line = await Line.through(wire)
    assert await line.says(b"hello") == b"hello"
    wire.swallow()
    line.writer.write(b"lost")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(line.reader.read(100), 0.2)
    wire.mend()
    assert await line.is_dead()
