"""The door for Prometheus: a few threads, all there from the start, answer whoever scrapes.

The worker's end waits for none of them: who says nothing, or reads nothing, has one for a while.
"""

from __future__ import annotations

import socket
from queue import SimpleQueue
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

_NUM_THREADS = 2
_TIMEOUT_S = 10.0


class _Quiet(WSGIRequestHandler):
    """Logs nothing, and waits for no client for ever."""

    timeout = _TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library names it)
        """A scrape is no event."""


class _Server(WSGIServer):
    """Hands each connection to a thread. Starting one for it can hang where memory is short."""

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Quiet)
        self.set_app(make_wsgi_app(registry))
        self._taken: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        for work in (self.serve_forever, *[self._answer_all] * _NUM_THREADS):
            Thread(target=work, name="metrics", daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """It is answered beside the loop that accepts."""
        self._taken.put((request, client_address))

    def _answer_all(self) -> None:
        while True:
            self._answer(*self._taken.get())

    def _answer(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:  # it has gone or says nothing; want of memory ends no thread of ours
            pass
        finally:
            self.shutdown_request(request)


def serve_metrics(host: str, port: int, registry: CollectorRegistry) -> int:
    """Returns the port at which the metrics are from now on. Raises OSError when it is taken.

    host: as in an address, one of IPv6 in brackets.
    """
    server = _Server((host.strip("[]"), port), registry)
    return int(server.server_address[1])
