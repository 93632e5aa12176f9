"""Threads beside the event loop, for what takes a while: all are there before anything is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import Barrier

# Large bodies, metrics and files that are read or written at once.
NUM_ASIDE = 4


@asynccontextmanager
async def aside() -> AsyncIterator[None]:
    """`asyncio.to_thread` starts no thread of its own from now on."""
    asyncio.get_running_loop().set_default_executor(started())
    yield


def started(count: int = NUM_ASIDE) -> ThreadPoolExecutor:
    """All of its threads run, and no more are started.

    A pool starts its threads when they are needed. Where memory is short then, CPython's new thread
    can die before it says that it began, and who started it, the event loop, waits for ever.
    """
    pool = ThreadPoolExecutor(count, "aside")
    begun = Barrier(count + 1)
    for _ in range(count):
        pool.submit(begun.wait)
    begun.wait()
    return pool
