"""Metrics are served without starting a thread for anybody, and nobody holds them up for long."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.registry import Collector

from worker.scrapes import serve_metrics


def counted() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("trees", "Seen.", registry=registry).inc(3)
    return registry


def test_scrapes_are_answered_by_threads_that_were_there() -> None:
    before = set(threading.enumerate())
    port = serve_metrics("127.0.0.1", 0, counted())
    served = set(threading.enumerate())
    with socket.create_connection(("127.0.0.1", port)):  # one that says nothing
        for _ in range(5):
            answer = httpx.get(f"http://127.0.0.1:{port}/metrics")
            assert "trees_total 3.0" in answer.text
            assert set(threading.enumerate()) <= served
        assert all(thread.daemon for thread in served - before), "the worker's end waits for none"


def test_an_address_of_ipv6_is_one_to_scrape() -> None:
    try:
        port = serve_metrics("[::1]", 0, counted())
    except OSError as error:
        if socket.has_ipv6 and not isinstance(error, socket.gaierror):
            pytest.skip(f"no IPv6 here: {error}")
        raise
    assert "trees_total 3.0" in httpx.get(f"http://[::1]:{port}/metrics").text


class Broken(Collector):
    is_broken = True

    def collect(self) -> Iterator[Metric]:
        if self.is_broken:
            raise MemoryError
        yield Metric("trees", "Seen.", "gauge")


def test_scrapes_that_break_in_our_hands_end_no_thread() -> None:
    registry, broken = CollectorRegistry(), Broken()
    registry.register(broken)
    url = f"http://127.0.0.1:{serve_metrics('127.0.0.1', 0, registry)}/metrics"
    nowhere = io.StringIO()
    nowhere.close()
    with redirect_stderr(nowhere):  # so that telling of it fails, too
        for _ in range(3):
            with pytest.raises(httpx.RemoteProtocolError):
                httpx.get(url)
    broken.is_broken = False
    assert "trees" in httpx.get(url).text
