"""What tenants may take: counted before a request waits, settled when it ends (steps 2 and 12).

    reserve ──▶ one request, its estimated prompt and all output that it may ask for are counted
      │           └── or RateLimited, and nothing is
      └─▶ settle ──▶ tokens are charged as they were used; what was not used is given back

A reservation is settled once, however often it is told to. Its id is made here: clients choose
their request ids, and one that sent the same id twice would pay once. A retry or a continuation on
another worker happens within one reservation. Settling costs the request nothing: it is written
behind it, and `close` waits for what is left.

A tenant without limits costs no round trip, any other one before and one after.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from itertools import count
from types import TracebackType

from gateway.errors import Headers
from gateway.request import Ask, Usage
from gateway.store.interface import QuotaStore, Settlement, Take
from gateway.telemetry.tenancy import TenancyTelemetry
from gateway.tenancy.estimate import Estimate, estimate
from gateway.tenancy.refusal import limit_headers, refusal, too_large
from gateway.tenancy.tenants import Tenant
from gateway.tenancy.usage import UsageLedger
from gateway.tenant_config import QuotaConfig

# Leases are renewed so often within one.
_RENEWALS = 3


class Reservation:
    """What one request holds. headers: how the tenant's limits stand, in OpenAI's words."""

    def __init__(self, quotas: Quotas, tenant: Tenant, take: Take | None, headers: Headers = ()):
        self.headers = headers
        self._quotas = quotas
        self._tenant = tenant
        self._take = take
        self._settled = False

    def settle(self, usage: Usage) -> None:
        """The request is charged what it used, if it was not settled before.

        Without any token it pays none, and does not count as used; it was a request all the same.
        """
        if not self._settled:
            self._settled = True
            self._quotas.settle(self._tenant, self._take, usage)

    def __enter__(self) -> Reservation:
        """It is settled when the context is left."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Whoever was not settled never reached a worker, and pays nothing."""
        self.settle(Usage())


class Quotas:
    """Reserves and settles; lives on one event loop. `run` must run beside it.

    word: what the ids of this process begin with, new with every process. clock: seconds.
    """

    def __init__(
        self,
        store: QuotaStore,
        ledger: UsageLedger,
        telemetry: TenancyTelemetry,
        config: QuotaConfig,
        word: str,
        clock: Callable[[], float],
    ):
        self._store = store
        self._ledger = ledger
        self._telemetry = telemetry
        self._config = config
        self._ids = (f"{word}-{number}" for number in count())
        self._clock = clock
        self._running: dict[str, set[str]] = {}
        self._outbox: list[Settlement] = []
        self._writer: asyncio.Task[None] | None = None

    async def reserve(self, tenant: Tenant, asks: Sequence[Ask]) -> Reservation:
        """The request is counted. Raises RateLimited, and then it is not."""
        limits = tenant.limits
        if not limits.any:
            return Reservation(self, tenant, None)
        wanted = estimate(asks, self._config.default_output_tokens)
        take = Take(next(self._ids), tenant.id, limits, _tokens(tenant, wanted))
        began = self._clock()
        try:
            standing = await self._store.take(take)
        except BaseException:  # the client may be gone; the take may have come through
            self._write(Settlement(take.id, tenant.id, limits, 0))
            raise
        self._telemetry.reserve_s.observe(self._clock() - began)
        headers = limit_headers(limits, standing)
        if standing.denied_by is not None:
            self._telemetry.refused(tenant.id, standing.denied_by.value)
            raise refusal(tenant.id, take, standing, headers)
        if limits.concurrency is not None:
            self._running.setdefault(tenant.id, set()).add(take.id)
        return Reservation(self, tenant, take, headers)

    def settle(self, tenant: Tenant, take: Take | None, usage: Usage) -> None:
        """Charge what was used. Only a reservation calls this, once."""
        if usage.prompt_tokens or usage.completion_tokens:
            self._ledger.count(tenant.id, usage)
        if take is None:
            return
        running = self._running.get(tenant.id)
        if running is not None:
            running.discard(take.id)
            if not running:
                del self._running[tenant.id]
        self._write(Settlement(take.id, tenant.id, take.limits, self._charge(usage)))

    async def run(self) -> None:
        """Renew the leases of what runs, for ever."""
        while True:
            await asyncio.sleep(self._config.lease_s / _RENEWALS)
            if self._running:
                await self._store.renew({t: tuple(ids) for t, ids in self._running.items()})

    async def close(self) -> None:
        """All settlements are written, or the store is away."""
        while self._writer is not None:
            await asyncio.wait([self._writer])

    def _charge(self, usage: Usage) -> int:
        cheaper = 1.0 - self._config.cached_token_share
        tokens = usage.prompt_tokens + usage.completion_tokens - usage.cached_tokens * cheaper
        return math.ceil(tokens)

    def _write(self, settlement: Settlement) -> None:
        self._outbox.append(settlement)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._outbox:
                settlements, self._outbox = self._outbox, []
                await self._store.settle(settlements)
        finally:
            self._writer = None


def _tokens(tenant: Tenant, wanted: Estimate) -> int:
    """How many to count. Raises RateLimited if the tenant can never have so many at once."""
    limit = tenant.limits.tokens
    if limit is None or wanted.tokens <= limit:
        return wanted.tokens
    if wanted.asked or wanted.prompt_tokens > limit:
        raise too_large(tenant.id, wanted, limit)
    return limit  # the output is our own guess: with nothing else counted, it passes
