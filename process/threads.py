"""Threads beside the event loop, for what takes a while: all are there before anything is asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier


def started(count: int) -> ThreadPoolExecutor:
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
