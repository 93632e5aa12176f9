"""Connections over which nothing is asked for a while, in the server's own kind of event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from functools import partial

import uvicorn
import uvloop

from gateway.config import LimitConfig
from gateway.http.connection import Connection

IDLE_S = 0.2
ASK = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def app(scope: object, receive: object, send: uvicorn._types.ASGISendCallable) -> None:
    head = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b"ok"})


class Client(threading.Thread):
    """Asks, waits for `again`, asks over the same connection. got: the two answers, or nothing."""

    def __init__(self, port: int):
        super().__init__()
        self.got: list[bytes] = []
        self.first, self.again, self.asked = (threading.Event() for _ in range(3))
        self._port = port

    def run(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port), timeout=10) as line:
            line.sendall(ASK)
            self.got.append(line.recv(1000))
            self.first.set()
            assert self.again.wait(10)
            line.sendall(ASK)
            self.asked.set()
            try:
                self.got.append(line.recv(1000))
            except ConnectionError:
                self.got.append(b"")


async def served(listener: socket.socket, client: Client, *, stands_still: bool) -> None:
    config = uvicorn.Config(
        app,
        http=partial(Connection, LimitConfig(idle_s=IDLE_S)),  # type: ignore[arg-type]
        lifespan="off",
        log_config=None,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    client.start()
    await asyncio.to_thread(client.first.wait, 10)
    if stands_still:  # as a process does that is stopped, or gets no CPU
        client.again.set()
        assert client.asked.wait(10)
        time.sleep(2 * IDLE_S)  # noqa: ASYNC251 (that is the point)
    else:
        await asyncio.sleep(10 * IDLE_S)
        client.again.set()
    await asyncio.to_thread(client.join)
    server.should_exit = True
    await serving


def ask_twice(*, stands_still: bool) -> list[bytes]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client(int(listener.getsockname()[1]))
        uvloop.run(served(listener, client, stands_still=stands_still))
    return [answer[:15] for answer in client.got]


def test_a_request_that_comes_while_the_gateway_stands_still_is_answered() -> None:
    assert ask_twice(stands_still=True) == [b"HTTP/1.1 200 OK"] * 2


def test_a_connection_over_which_nothing_is_asked_ends() -> None:
    assert ask_twice(stands_still=False) == [b"HTTP/1.1 200 OK", b""]


def test_a_connection_is_kept_for_longer_than_clients_keep_it() -> None:
    assert LimitConfig().idle_s > 60
