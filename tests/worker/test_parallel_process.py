"""A worker of two ranks, as processes: whichever of them ends, no other stays."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import transformers as t

from proto import worker_pb2 as pb
from tests.worker.door import Client
from tests.worker.model.tiny import GROUPED, save_tiny
from worker.parallel.frames import Assignment, pack

ROOT = Path(__file__).parents[2]


@dataclass
class Split:
    """A worker of two ranks. other: the second one's pid. port: once it is ready."""

    process: asyncio.subprocess.Process
    other: int
    port: int = 0

    async def end(self) -> tuple[int, str]:
        """Returns status and what was said, once the process has ended."""
        async with asyncio.timeout(60):
            _, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()


@pytest.fixture
async def starting(tmp_path: Path, smollm2_folder: Path) -> AsyncIterator[Split]:
    save_tiny(t.LlamaConfig(**{**GROUPED, "vocab_size": 49152}), tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(smollm2_folder / name, tmp_path / name)
    flags = ["--tensor-parallel=2", "--kv-memory=4MiB", "--drain-s=0.3"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "worker", f"--model={tmp_path}", *flags),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    yield Split(process, other=await number_after(process, b"rank=1 pid="))
    if process.returncode is None:
        process.kill()
        await process.communicate()


@pytest.fixture
async def worker(starting: Split) -> Split:
    starting.port = await number_after(starting.process, b"port=")
    return starting


async def number_after(process: asyncio.subprocess.Process, words: bytes) -> int:
    assert process.stderr is not None
    async with asyncio.timeout(120):
        async for line in process.stderr:
            if found := re.search(words + rb"(\d+)", line):
                return int(found[1])
    raise AssertionError("the worker ended before it was ready")


async def until_gone(pid: int) -> None:
    """Returns when no process has that id; one that nobody has waited for yet counts as none."""
    async with asyncio.timeout(20):
        while is_running(pid):  # noqa: ASYNC110 - nothing tells of another's child
            await asyncio.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
async def waiting(tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A second rank that waits for a first one, in the midst of what all ranks do together."""
    store = tmp_path / "store"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "worker.parallel"), cwd=ROOT, stdin=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(
        pack(Assignment(1, 2, str(store), "", 1, 16, "auto", "float32", "cpu", 1, "warning"))
    )
    async with asyncio.timeout(60):
        while not store.exists():  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.05)
    yield process
    if process.returncode is None:
        process.kill()
        await process.wait()


async def begin(worker: Split) -> Client:
    """Returns a link with an endless request under way."""
    client = Client(worker.port)
    await client.greet()
    endless = pb.Stopping(max_tokens=200, ignore_eos=True)
    await client.submit(1, text="Forty thousand trunks", stopping=endless)
    while not client.tokens.get((1, 0)):
        await client.take()
    return client


async def test_a_rank_that_dies_ends_the_worker_and_its_stream_breaks_without_a_failure(
    worker: Split,
) -> None:
    client = await begin(worker)
    os.kill(worker.other, signal.SIGKILL)
    while isinstance(await client.call.read(), pb.ToGateway):
        pass
    status, said = await worker.end()
    assert status == 1
    assert "worker: Rank 1 of the model ended by signal 9." in said
    assert not client.ends
    await client.channel.close(None)


@pytest.mark.slow
async def test_a_rank_that_dies_while_loading_ends_the_start(starting: Split) -> None:
    os.kill(starting.other, signal.SIGKILL)
    status, said = await starting.end()
    assert (status, "worker: Rank 1 of the model ended by signal 9." in said) == (1, True)


@pytest.mark.slow
async def test_an_idle_worker_ends_with_its_rank(worker: Split) -> None:
    os.kill(worker.other, signal.SIGKILL)
    status, said = await worker.end()
    assert (status, "worker: Rank 1 of the model ended by signal 9." in said) == (1, True)


async def test_sigterm_hands_back_what_runs_and_leaves_no_process(worker: Split) -> None:
    client = await begin(worker)
    worker.process.send_signal(signal.SIGTERM)
    await client.until(1)
    while isinstance(await client.call.read(), pb.ToGateway):
        pass
    status, said = await worker.end()
    assert (status, "rank_lost" in said) == (0, False)
    await until_gone(worker.other)
    await client.channel.close(None)


async def test_a_rank_that_waits_for_others_leaves_with_its_pipe_and_not_for_a_terminal(
    waiting: asyncio.subprocess.Process,
) -> None:
    for name in (signal.SIGINT, signal.SIGTERM):
        waiting.send_signal(name)
    assert waiting.stdin is not None
    waiting.stdin.close()
    async with asyncio.timeout(20):
        assert await waiting.wait() == 0


@pytest.mark.slow
async def test_a_rank_outlives_the_terminal_s_signals_but_not_its_killed_worker(
    worker: Split,
) -> None:
    for name in (signal.SIGINT, signal.SIGTERM):
        os.kill(worker.other, name)
    client = await begin(worker)
    worker.process.kill()
    await worker.process.wait()
    await until_gone(worker.other)
    await client.channel.close(None)
