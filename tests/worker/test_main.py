"""A worker as a process of its own, from its first words to its last."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import grpc
import pytest

from proto import worker_pb2 as pb
from tests.worker.door import Client
from worker.assembly import build_runner
from worker.config import ConfigError, load
from worker.sequence import pack_tokens
from worker.sizes import decide

ROOT = Path(__file__).parents[2]
PROMPT = "Once upon a time, in a forest of forty thousand trunks on one root,"


@pytest.fixture
async def process(smollm2_folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    flags = ["--max-running-sequences=1", "--drain-s=0.3", "--kv-memory=64MiB"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "worker", f"--model={smollm2_folder}", *flags),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    yield process
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def port_of(process: asyncio.subprocess.Process) -> int:
    assert process.stderr is not None
    async with asyncio.timeout(120):
        async for line in process.stderr:
            if found := re.search(rb"ready .*port=(\d+)", line):
                return int(found[1])
    raise AssertionError("the worker ended before it was ready")


async def test_what_a_worker_hands_back_on_sigterm_goes_on_where_it_stood(
    process: asyncio.subprocess.Process,
) -> None:
    client = Client(await port_of(process))
    hello = await client.greet()
    assert (hello.max_running_sequences, hello.max_waiting_sequences) == (1, 1024)
    endless = pb.Stopping(max_tokens=1000, ignore_eos=True)
    await client.submit(1, text=PROMPT, stopping=endless)
    while not client.tokens.get((1, 0)):  # of two that wait, the shorter would begin
        await client.take()
    await client.submit(2, text="Never begun.", stopping=endless)
    while len(client.tokens[1, 0]) < 5 or not client.last.load.waiting_sequences:
        assert not client.ends
        await client.take()
    process.send_signal(signal.SIGTERM)
    await client.until(1, 2)
    assert list(client.ends) == [2, 1]
    codes = {pb.FailureCode.Name(client.failure(number).code) for number in (1, 2)}
    assert codes == {"DRAINING"}
    while isinstance(await client.call.read(), pb.ToGateway):
        pass
    assert await client.call.code() is grpc.StatusCode.OK
    async with asyncio.timeout(30):
        assert await process.wait() == 0
    await client.channel.close(None)


async def test_a_stream_goes_on_from_ids_and_characters_over_the_link(
    process: asyncio.subprocess.Process,
) -> None:
    client = Client(await port_of(process))
    await client.greet()
    seeded = pb.Sampling(temperature=0.9, top_p=0.9, repetition_penalty=1.1, seed=11)
    stopping = pb.Stopping(max_tokens=24)
    await client.submit(1, text=PROMPT, sampling=seeded, stopping=stopping)
    await client.until(1)
    tokens, text = client.tokens[1, 0], client.text[1, 0]
    assert len(tokens) > 10
    cut = pb.Resume(choice=0, token_ids=pack_tokens(tokens[:10]), text_chars=7)
    await client.submit(2, text=PROMPT, sampling=seeded, stopping=stopping, resume=[cut])
    await client.until(2)
    assert tokens[:10] + client.tokens[2, 0] == tokens
    assert text[:7] + client.text[2, 0] == text
    usages = [client.usage(number) for number in (1, 2)]
    assert usages[0].completion_tokens == usages[1].completion_tokens == len(tokens)
    assert usages[0].prompt_tokens == usages[1].prompt_tokens
    await client.leave()


def test_what_is_equal_only_within_rounding_does_not_start_as_deterministic(
    smollm2_folder: Path,
) -> None:
    wanted = {"model": str(smollm2_folder), "kv_memory": "512 tokens", "deterministic": True}
    for more, is_refused in (({}, False), ({"member": "modules"}, True)):
        config = load(None, {**wanted, **more})
        sizes = decide(config, smollm2_folder)
        assert sizes.pages.num_tokens == 512
        with pytest.raises(ConfigError, match="member 'modules'") if is_refused else nullcontext():
            build_runner(config, sizes, smollm2_folder)
