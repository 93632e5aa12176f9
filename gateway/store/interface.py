"""What is asked of a store, and the values that cross.

    take ──▶ admitted: counted, and under the id there is a record ──▶ settle ──▶ the record is gone
      └────▶ denied: nothing is counted                             (a second settle finds none)

Every operation may be repeated with the same arguments: where a reply was lost, it is asked again.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class StoreAway(Exception):
    """The store did not answer in time, or cannot do what it is for. The text says why."""


class Limit(enum.Enum):
    """Which limit denied; the values are the fields of a tenant's quota."""

    REQUESTS = "requests_per_minute"
    TOKENS = "tokens_per_minute"
    CONCURRENCY = "concurrency"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tenant may have: per minute, and at once. None: as much as it likes."""

    requests: int | None = None
    tokens: int | None = None
    concurrency: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is anything to count."""
        return (self.requests, self.tokens, self.concurrency) != (None, None, None)


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Take:
    """One request with so many tokens; the id is unique over all gateways and times."""

    id: str
    tenant: str
    limits: Limits
    tokens: int


@dataclass(frozen=True, slots=True)
class Window:
    """How a limit stands: how many more would be admitted now, and when it is whole again."""

    remaining: int
    reset_s: float


@dataclass(frozen=True, slots=True)
class Standing:
    """What a take found. denied_by None: it is admitted. Windows are None without that limit.

    retry_after_s: when the same take would pass if nothing else came; a guess for concurrency.
    """

    requests: Window | None = None
    tokens: Window | None = None
    denied_by: Limit | None = None
    retry_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of what was taken under the id: so many tokens are charged in all."""

    id: str
    tenant: str
    limits: Limits
    tokens: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What was used."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Counts) -> Counts:
        """The sum."""
        return Counts(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What a tenant used within an hour. hour: its begin, in UTC."""

    tenant: str
    hour: datetime
    counts: Counts


@dataclass(frozen=True, slots=True)
class TenantTable:
    """All tenants' records as JSON, by id. version: another one after every change.

    It is EPOCH:COUNT, or empty where nothing was ever written. Another epoch: the store began anew.
    """

    version: str
    records: Mapping[str, bytes]

    @property
    def epoch(self) -> str:
        """Of the version."""
        return self.version.rpartition(":")[0]


class QuotaStore(Protocol):
    """Counts what tenants take.

    Rates are GCRA, in its form that counts a level which leaks out evenly (ITU-T I.371, A). The
    limit is one minute's worth: a tenant that was idle may take that at once.
    """

    async def take(self, take: Take) -> Standing:
        """All of it is counted, or nothing is."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        """What each id took is replaced by what it is charged, once; leases are given back."""
        ...

    async def renew(self, held: Mapping[str, Sequence[str]]) -> None:
        """The ids, by tenant, count as running for another lease, whatever was known of them."""
        ...


class UsageStore(Protocol):
    """Keeps what tenants used, by hour."""

    async def add_usage(self, batch: str, rows: Sequence[UsageRow]) -> None:
        """The rows are added, once for each batch. Raises StoreAway."""
        ...

    async def usage(self, tenant: str, days: Sequence[str]) -> list[UsageRow]:
        """A tenant's rows of the days (2026-01-31), in order of time. Raises StoreAway."""
        ...


class WorkerStore(Protocol):
    """Where workers write themselves in."""

    async def workers(self) -> list[str]:
        """Every worker whose lease lasts, as NAME=HOST:PORT."""
        ...


class TenantStore(Protocol):
    """Keeps tenants' records."""

    async def tenants(self, known: str | None) -> TenantTable | None:
        """All records; None if they are still of the known version. Raises StoreAway."""
        ...

    async def write_tenant(self, tenant: str, before: bytes | None, after: bytes | None) -> bool:
        """The record is `after` (None: gone). False, and nothing is done, if it was not `before`.

        Raises StoreAway.
        """
        ...
