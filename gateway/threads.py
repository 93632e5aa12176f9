"""Threads beside the event loop, for what takes a while: all are there before anything is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from process.threads import started

# Large bodies, metrics and files that are read or written at once.
NUM_ASIDE = 4


@asynccontextmanager
async def aside() -> AsyncIterator[None]:
    """`asyncio.to_thread` starts no thread of its own from now on."""
    asyncio.get_running_loop().set_default_executor(started(NUM_ASIDE))
    yield
