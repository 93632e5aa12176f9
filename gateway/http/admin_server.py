"""Serves the admin API beside the public one: the same process and loop, another port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import uvicorn
from starlette.applications import Starlette

from gateway.config import LimitConfig
from gateway.http.connection import Connection
from gateway.telemetry.log import EventLog

_SHUTDOWN_S = 5


class _Server(uvicorn.Server):
    """Leaves signals to the server of the public API."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving_admin(
    app: Starlette, listener: socket.socket, limits: LimitConfig, log: EventLog
) -> AsyncIterator[None]:
    """The admin API is served on the listener, which is closed behind."""
    settings = uvicorn.Config(
        app,
        http=partial(Connection, limits),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    server = _Server(settings)
    host, port = listener.getsockname()[:2]
    log.info("admin_listening", host=host, port=port)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
