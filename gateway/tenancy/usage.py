"""What tenants use, on its way to the store: added up here, written every second (step 12).

What cannot be written waits and is tried again, under the same batch name so that nothing counts
twice. At the end of the gateway all is written, or the log says what was not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from gateway.request import Usage
from gateway.store.interface import Counts, StoreAway, UsageRow, UsageStore
from gateway.telemetry.tenancy import TenancyTelemetry

Key = tuple[str, datetime]

_FLUSH_S = 1.0
_HOUR_S = 3600


class UsageLedger:
    """Adds up usage by tenant and hour. wall_clock: seconds since 1970; make_id: a random word."""

    def __init__(
        self,
        store: UsageStore,
        telemetry: TenancyTelemetry,
        wall_clock: Callable[[], float],
        make_id: Callable[[], str],
    ):
        self._store = store
        self._telemetry = telemetry
        self._wall_clock = wall_clock
        self._make_id = make_id
        self._fresh: dict[Key, Counts] = {}
        self._batch: str | None = None
        self._rows: list[UsageRow] = []

    def count(self, tenant: str, usage: Usage) -> None:
        """One request ended."""
        now = self._wall_clock()
        key = tenant, datetime.fromtimestamp(now - now % _HOUR_S, UTC)
        counts = Counts(1, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        self._fresh[key] = self._fresh.get(key, Counts()) + counts

    async def run(self) -> None:
        """Write every second, for ever."""
        while True:
            await asyncio.sleep(_FLUSH_S)
            try:
                await self.flush()
            except StoreAway as away:
                self._telemetry.usage_delayed(str(away))

    async def flush(self) -> None:
        """All that was counted is in the store. Raises StoreAway; then it waits for the next."""
        while self._rows or self._fresh:
            if self._batch is None:
                self._batch = self._make_id()
                self._rows = [UsageRow(*key, counts) for key, counts in self._fresh.items()]
                self._fresh = {}
            await self._store.add_usage(self._batch, self._rows)
            self._batch, self._rows = None, []

    async def close(self) -> None:
        """All is written, or the log says what is lost."""
        try:
            await self.flush()
        except StoreAway:
            lost = [row.counts for row in self._rows] + list(self._fresh.values())
            tokens = sum(counts.prompt_tokens + counts.completion_tokens for counts in lost)
            self._telemetry.usage_lost(len(lost), tokens)
