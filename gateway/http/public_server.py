"""Serves the public API until a signal, and then for as long as what runs may still take.

SIGTERM ──▶ no new connections; what runs goes on
   └── shutdown_s later ──▶ what still runs is failed, in words (`deadline`)
          └── FAREWELL_S later ──▶ clients that did not take the word are cut
"""

from __future__ import annotations

import asyncio
import math
import socket
from functools import partial

import uvicorn

from gateway.config import GatewayConfig
from gateway.http.app import FAREWELL_S, Express
from gateway.http.connection import Connection


class PublicServer(uvicorn.Server):
    """uvicorn's, which would cancel what still runs without a word to its client."""

    def __init__(self, app: Express, config: GatewayConfig):
        super().__init__(_settings(app, config))
        self._end_all = app.deadline.end_all
        self._shutdown_s = config.shutdown_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """All requests have ended, in the end because they must."""
        timer = asyncio.get_running_loop().call_later(self._shutdown_s, self._end_all)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


def _settings(app: Express, config: GatewayConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=partial(Connection, config.limits, app.on_stall),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=math.ceil(config.shutdown_s + FAREWELL_S) + 1,
    )
