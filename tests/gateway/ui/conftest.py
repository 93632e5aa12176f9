"""Gateways whose clients hang up at once: one that ends waits a second for those that do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

import pytest

from tests.gateway.conftest import GatewaySettings, Live, Serve
from tests.gateway.fake_worker import FakeWorker


@pytest.fixture
async def serve(serve: Serve) -> AsyncIterator[Serve]:
    """Serve a gateway for the given workers; it stops with the test."""
    all_live: list[Live] = []

    async def start(*workers: FakeWorker, **settings: Unpack[GatewaySettings]) -> Live:
        all_live.append(await serve(*workers, **settings))
        return all_live[-1]

    yield start
    for live in all_live:
        await live.http.aclose()
