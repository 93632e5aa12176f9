"""Metrics are served without starting a thread for anybody, and nobody holds them up for long."""

from __future__ import annotations

import socket
import threading

import httpx
from prometheus_client import CollectorRegistry, Counter

from worker.scrapes import serve_metrics


def test_scrapes_are_answered_by_threads_that_were_there() -> None:
    registry = CollectorRegistry()
    Counter("trees", "Seen.", registry=registry).inc(3)
    port = serve_metrics("127.0.0.1", 0, registry)
    before = threading.active_count()
    with socket.create_connection(("127.0.0.1", port)):  # one that says nothing
        for _ in range(5):
            answer = httpx.get(f"http://127.0.0.1:{port}/metrics")
            assert "trees_total 3.0" in answer.text
            assert threading.active_count() == before
