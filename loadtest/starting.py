"""Waits for processes that were just started, and says which one did not make it."""

from __future__ import annotations

import time
from collections.abc import Callable

from loadtest.errors import FleetFailed
from pando.children import Children

POLL_S = 0.05


def wait_until(
    condition: Callable[[], bool], children: Children, what: str, timeout_s: float
) -> None:
    """Returns once it holds; what: for the sentence. Raises FleetFailed when a child has ended."""
    end = time.monotonic() + timeout_s
    while not condition():
        dead = children.dead()
        if dead is not None:
            raise FleetFailed(f"{dead.name} ended:\n{dead.last_lines()}")
        if time.monotonic() > end:
            raise FleetFailed(f"{what} after {timeout_s:.0f} s")
        time.sleep(POLL_S)
