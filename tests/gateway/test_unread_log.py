"""A gateway whose log nobody reads goes on."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.gateway.conftest import StartWorker
from tests.gateway.test_main import until_ready
from tests.process.pipes import Pipe, in_background, opened

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    with opened() as pipe:
        yield pipe


async def test_a_gateway_whose_log_nobody_reads_answers(
    pipe: Pipe, start_worker: StartWorker
) -> None:
    asked = await start_worker()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "--port", "0", "--worker", f"w0={asked.address}"),
        stderr=pipe.write_end,
    )
    try:
        port = int(await asyncio.to_thread(port_of, pipe))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            await until_ready(http)
            for number in range(60):
                asking = {"x-request-id": f"{number:0100}"}
                answer = await http.post("/v1/chat/completions", json=BODY, headers=asking)
                assert answer.status_code == 200
            assert "log_lines_dropped_total 0.0" in (await http.get("/metrics")).text
        result = in_background(pipe.read)
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 30)
        assert len(re.findall(" request_ended ", result())) == 60
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def port_of(pipe: Pipe) -> bytes:
    """Read no further than where it says that it listens."""
    head = b""
    while not (found := re.search(rb"listening host=127.0.0.1 port=(\d+) ", head)):
        head += os.read(pipe.read_end, 1)
    return found[1]
