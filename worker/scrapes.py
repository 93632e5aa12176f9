"""The door for Prometheus: a few threads, all there from the start, answer whoever scrapes."""

from __future__ import annotations

import socket
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from worker.threads import started

_NUM_THREADS = 2
_TIMEOUT_S = 10.0


class _Quiet(WSGIRequestHandler):
    """Logs nothing, and waits for no client for ever."""

    timeout = _TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library names it)
        """A scrape is no event."""


class _Server(WSGIServer):
    """Hands each connection to a thread. Starting one for it can hang where memory is short."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Quiet)
        self._pool = started(_NUM_THREADS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """It is answered beside the loop that accepts."""
        self._pool.submit(self._answer, request, client_address)

    def _answer(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:  # it has gone, or says nothing
            pass
        finally:
            self.shutdown_request(request)


def serve_metrics(host: str, port: int, registry: CollectorRegistry) -> int:
    """Returns the port at which the metrics are from now on. Raises OSError when it is taken."""
    server = _Server((host, port))
    server.set_app(make_wsgi_app(registry))
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_address[1])
