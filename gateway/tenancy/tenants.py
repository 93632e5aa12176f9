"""Who asks, and what they may: from the Authorization header to a tenant (step 2).

`Tenants` looks keys up in a `Roster`, which is replaced as a whole when tenants change; a request
keeps the tenant that it began with. Without any source of tenants the gateway is open: whoever asks
is the one tenant `default`.

A key is found by its sha256 in a dictionary, in the same time with one tenant or ten thousand. How
long that takes tells nothing of the keys: who asks chooses a text, not its digest; a dictionary
compares digests only after their hashes, which are secret to the process; and knowing part of a
digest brings nobody nearer to a key of 256 random bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gateway.errors import TenantsUnknown, Unauthenticated
from gateway.request import Share
from gateway.store.interface import NO_LIMITS, Limits
from gateway.tenancy.keys import bearer_digest
from gateway.tenant_config import PolicyConfig, TenantConfig

EVERYBODYS = Share()
_RANKS = {"high": 0, "normal": 1, "low": 2}


@dataclass(frozen=True, slots=True)
class Tenant:
    """One customer.

    namespace: whose cached pages it shares. models None: all of them. policy None: the fleet's.
    weight: its share where requests wait; rank: its priority class, 0 goes first. max_queued: how
    many of its requests may wait at this gateway. debug: it may see how its requests were routed.
    share: what it may have of each worker.
    """

    id: str
    namespace: bytes
    models: frozenset[str] | None = None
    policy: PolicyConfig | None = None
    weight: float = 1.0
    rank: int = 1
    limits: Limits = NO_LIMITS
    max_queued: int | None = None
    debug: bool = False
    share: Share = EVERYBODYS

    @classmethod
    def of(cls, config: TenantConfig) -> Tenant:
        """The tenant that is configured so."""
        quota = config.quota
        return cls(
            id=config.id,
            namespace=(config.namespace or config.id).encode(),
            models=None if config.models is None else frozenset(config.models),
            policy=config.policy,
            weight=config.weight,
            rank=_RANKS[config.priority],
            limits=Limits(quota.requests_per_minute, quota.tokens_per_minute, quota.concurrency),
            max_queued=quota.max_queued,
            debug=config.debug,
            share=Share(
                _RANKS["normal"] - _RANKS[config.priority],
                config.weight,
                config.cache_share,
                config.cache_cap,
            ),
        )

    def may_use(self, model: str) -> bool:
        """Whether the tenant is allowed the model."""
        return self.models is None or model in self.models


OPEN = Tenant(id="default", namespace=b"default")


@dataclass(frozen=True, slots=True)
class Entry:
    """Whose key it is. expires_at: seconds since 1970; None: never."""

    tenant: Tenant
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Roster:
    """All keys at a time, by digest.

    open: nobody needs a key. complete: every source of tenants was read at least once; if not, a
    key that is not here may still be somebody's.
    """

    entries: Mapping[bytes, Entry] = field(default_factory=dict)
    open: bool = False
    complete: bool = True


class Tenants:
    """Finds the tenant of a key. Whoever watches the sources replaces the roster."""

    def __init__(self, roster: Roster, wall_clock: Callable[[], float] = time.time):
        self.roster = roster
        self._wall_clock = wall_clock

    def of(self, authorization: str | None) -> Tenant:
        """The tenant of an Authorization header. Raises Unauthenticated, TenantsUnknown."""
        roster = self.roster
        if roster.open:
            return OPEN
        digest = bearer_digest(authorization)
        if digest is None:
            raise Unauthenticated(
                "You didn't provide an API key. Send it as 'Authorization: Bearer KEY'."
            )
        entry = roster.entries.get(digest)
        if entry is None:
            if not roster.complete:
                raise TenantsUnknown("a source of tenants was never read")
            raise Unauthenticated("Incorrect API key provided.")
        if entry.expires_at is not None and self._wall_clock() >= entry.expires_at:
            when = datetime.fromtimestamp(entry.expires_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            raise Unauthenticated(f"This API key expired at {when}.", code="expired_api_key")
        return entry.tenant
