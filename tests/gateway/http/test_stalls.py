"""A client that takes nothing is cut, whatever lies unsent; one that takes a little is not."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from gateway.config import LimitConfig
from gateway.http.stalls import Outflow
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fake_worker import Line, Script

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
_STALL_S = 0.4


async def large(submit: pb.Submit, line: Line) -> None:
    """Twenty megabytes, soon."""
    for _ in range(20):
        line.text(submit.request_id, "x" * 1_000_000)
    line.step(outputs=[pb.Output(request_id=submit.request_id, finish_reason=pb.STOP)])
    line.done(submit.request_id, completion=20)


async def large_then_lost(submit: pb.Submit, line: Line) -> None:
    """Twenty megabytes, and then a failure."""
    for _ in range(20):
        line.text(submit.request_id, "x" * 1_000_000)
    line.fail(submit.request_id, pb.INTERNAL)


async def deaf(live: Live, body: dict[str, object]) -> socket.socket:
    """A client that asks and then reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", live.port))
    sent = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(sent)}\r\n\r\n"
    await loop.sock_sendall(client, head.encode() + sent)
    return client


@pytest.mark.parametrize(
    ("script", "stream"), [(large, False), (large, True), (large_then_lost, True)]
)
async def test_who_reads_nothing_of_an_answer_is_cut_in_the_end(
    start_worker: StartWorker, serve: Serve, script: Script, stream: bool
) -> None:
    worker = await start_worker(script=script)
    live = await serve(worker, limits=LimitConfig(stall_s=_STALL_S))
    await live.until_linked("w0")
    with await deaf(live, {**CHAT, "stream": stream}):
        await live.until(lambda: live.metric("stalled_clients_total") == 1)
        await live.until(lambda: live.metric("requests_in_flight") == 0)
    live.assert_nothing_is_left()


async def test_who_reads_slowly_gets_the_whole_answer(
    start_worker: StartWorker, serve: Serve
) -> None:
    live = await serve(await start_worker(script=large), limits=LimitConfig(stall_s=_STALL_S))
    await live.until_linked("w0")
    loop, size = asyncio.get_running_loop(), 0
    with await deaf(live, dict(CHAT)) as client:
        while size < 20_000_000:
            await asyncio.sleep(_STALL_S / 4 if size < 8_000_000 else 0)
            piece = await loop.sock_recv(client, 1_000_000)
            assert piece, "it was cut"
            size += len(piece)
            if size < 8_000_000:
                size += await _more(client)
    assert live.metric("stalled_clients_total") == 0


async def _more(client: socket.socket) -> int:
    """What else can be read of the next megabyte."""
    loop, size = asyncio.get_running_loop(), 0
    while size < 1_000_000:
        piece = await loop.sock_recv(client, 1_000_000)
        assert piece, "it was cut"
        size += len(piece)
    return size


class Pipe(asyncio.Transport):
    """A transport whose client a test plays."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent = 0
        self.is_cut = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unsent += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_cut, self.unsent = True, 0


async def test_it_is_cut_once_and_only_for_want_of_progress() -> None:
    pipe, cuts = Pipe(), 0

    def count() -> None:
        nonlocal cuts
        cuts += 1

    out = Outflow(pipe, 0.08, count)
    for _ in range(15):
        out.write(b"abc")
        pipe.unsent -= 1  # less than what comes, but something
        await asyncio.sleep(0.02)
    assert not pipe.is_cut
    pipe.unsent = 0
    await asyncio.sleep(0.2)
    assert not pipe.is_cut
    out.write(b"abc")
    await asyncio.sleep(0.2)
    assert pipe.is_cut
    assert cuts == 1


async def test_a_loop_that_was_held_up_cuts_nobody() -> None:
    import time

    pipe = Pipe()
    out = Outflow(pipe, 0.08, lambda: None)
    out.write(b"abc")
    await asyncio.sleep(0.03)
    time.sleep(0.2)  # noqa: ASYNC251 - that is the point
    await asyncio.sleep(0)
    assert not pipe.is_cut
    out.stop()
