"""A gateway that knows programs alone, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pando
from tests.pando.program_server import ProgramServer, serving


@pytest.fixture(scope="session")
def running_server() -> Iterator[ProgramServer]:
    with serving(ProgramServer()) as server:
        yield server


@pytest.fixture
def server(running_server: ProgramServer) -> Iterator[ProgramServer]:
    """The server as if it were new."""
    url = running_server.url
    running_server.__init__()  # type: ignore[misc]
    running_server.url = url
    client = pando.Client(url, model="tiny")
    pando.set_default_client(client)
    yield running_server
    pando.set_default_client(None)
    client.close()
