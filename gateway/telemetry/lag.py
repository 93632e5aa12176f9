"""How late the event loop is: what every request waits for beside its own work."""

from __future__ import annotations

import asyncio

from gateway.telemetry.metrics import Telemetry

_EVERY_S = 0.1


class LoopLag:
    """Sleeps a while again and again, and notes by how much it wakes up late."""

    def __init__(self, telemetry: Telemetry):
        self._telemetry = telemetry

    async def watch(self) -> None:
        """Measure for ever."""
        clock = self._telemetry.clock
        while True:
            due = clock() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self._telemetry.loop_lag_s.observe(max(0.0, clock() - due))
