"""Both processes' way out for log lines: whoever logs waits for nobody."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest

import gateway.telemetry.outlet
import worker.outlet
from tests.gateway.conftest import StartWorker
from tests.gateway.test_main import until_ready

OUTLETS = [gateway.telemetry.outlet.Outlet, worker.outlet.Outlet]
ROOM = 4096
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}


@dataclass
class Pipe:
    """A pipe with little room. Its ends are closed with the test."""

    read_end: int
    write_end: int

    def close_reader(self) -> None:
        os.close(self.read_end)
        self.read_end = -1

    def read(self) -> str:
        """Everything that is written until the other end is closed, here and elsewhere."""
        os.close(self.write_end)
        self.write_end = -1
        with os.fdopen(self.read_end, closefd=False) as file:
            return file.read()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe(*os.pipe())
    fcntl.fcntl(pipe.write_end, fcntl.F_SETPIPE_SZ, ROOM)
    yield pipe
    for end in (pipe.read_end, pipe.write_end):
        if end >= 0:
            os.close(end)


def dropped(num_lines: int) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": f"dropped={num_lines}"})


def log_to(outlet: logging.Handler) -> Callable[[str], None]:
    logger = logging.Logger("apart")
    logger.addHandler(outlet)
    return logger.warning


def in_background(read: Callable[[], str]) -> Callable[[], str]:
    """What is read, once it is over."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(read()))
    thread.start()

    def result() -> str:
        thread.join()
        return found[0]

    return result


@pytest.mark.parametrize("kind", OUTLETS)
def test_lines_that_nobody_reads_are_dropped_counted_and_told(
    kind: type[gateway.telemetry.outlet.Outlet], pipe: Pipe
) -> None:
    outlet = kind(os.dup(pipe.write_end), dropped, max_bytes=10_000)
    log = log_to(outlet)
    for number in range(1000):
        log(f"line {number:0100}")
    assert outlet.num_dropped > 800
    result = in_background(pipe.read)
    while outlet._num_bytes:
        pass
    log("the last")
    outlet.close()
    os.close(outlet._descriptor)
    lines = result().splitlines()
    told = [int(line.removeprefix("dropped=")) for line in lines if line.startswith("dropped=")]
    kept = [int(line.removeprefix("line ")) for line in lines if line.startswith("line ")]
    assert sum(told) == outlet.num_dropped == 1000 - len(kept)
    assert kept == list(range(len(kept)))
    assert lines[-1] == "the last"


@pytest.mark.parametrize("kind", OUTLETS)
def test_what_is_queued_at_the_end_is_written(
    kind: type[gateway.telemetry.outlet.Outlet], pipe: Pipe
) -> None:
    outlet = kind(os.dup(pipe.write_end), dropped)
    os.set_blocking(outlet._descriptor, False)
    log = log_to(outlet)
    for number in range(500):
        log(f"line {number:0100}")
    result = in_background(pipe.read)
    outlet.close()
    os.close(outlet._descriptor)
    assert len(result().splitlines()) == 500
    assert outlet.num_dropped == 0


@pytest.mark.parametrize("kind", OUTLETS)
def test_the_end_waits_for_a_reader_for_a_moment_only(
    kind: type[gateway.telemetry.outlet.Outlet], pipe: Pipe
) -> None:
    outlet = kind(pipe.write_end, dropped, farewell_s=0.01)
    log = log_to(outlet)
    for number in range(100):
        log(f"line {number:0100}")
    outlet.close()
    assert outlet._writer.is_alive()
    pipe.close_reader()
    outlet._writer.join()


@pytest.mark.parametrize("kind", OUTLETS)
def test_a_reader_that_is_gone_ends_nothing(
    kind: type[gateway.telemetry.outlet.Outlet], pipe: Pipe
) -> None:
    pipe.close_reader()
    outlet = kind(pipe.write_end, dropped)
    log = log_to(outlet)
    log("one")
    outlet.close()
    assert outlet.num_dropped == 1


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
