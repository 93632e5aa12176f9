"""What an operator may set of tenants, and of what keeps and counts them.

A tenant is the same value in the gateway's configuration, in a file of tenants, in Redis and in the
admin API. Keys are never in it in the clear: only their sha256.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.fields import (
    Instant,
    KeyDigest,
    Name,
    PositiveInt,
    Seconds,
    refuse_bad_port,
    refuse_repeats,
    whole,
)

# Keys that one tenant may have.
MAX_KEYS = 100


class PolicyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By which rule requests choose a worker; the fleet's default, or a tenant's own.

    cost           least of tokens queued and tokens to compute, by what every cache holds
    consistent     the static prefix's own worker on the ring, the next one where it is overloaded
    session        the session's own worker on the ring for as long as it lives
    least_loaded   the fewest tokens queued
    round_robin    one after the other
    dedicated      `workers` alone, within them by cost
    shuffle_shard  the same `shard_size` workers for all that a tenant asks, within them by cost

    workers: stable names; for dedicated, and for nothing else.
    """

    name: Literal[
        "cost",
        "consistent",
        "session",
        "least_loaded",
        "round_robin",
        "dedicated",
        "shuffle_shard",
    ] = "cost"
    workers: tuple[Name, ...] = ()
    shard_size: PositiveInt = 2

    def __post_init__(self) -> None:
        """Refuse names that would not be used, and a dedicated policy without any."""
        if (self.name == "dedicated") != bool(self.workers):
            raise ValueError(
                f"workers is {list(self.workers)} for policy {self.name!r}: "
                "at least one name for 'dedicated', none for the others"
            )
        refuse_repeats("workers", list(self.workers))


class KeyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An API key. sha256: of its text. id: its name; None: the digest's first twelve digits.

    expires_at: from then on it is refused; None: never.
    """

    sha256: KeyDigest
    id: Name | None = None
    created_at: Instant | None = None
    expires_at: Instant | None = None

    @property
    def name(self) -> str:
        """What it is called where it is listed."""
        return self.id or self.digest[:12]

    @property
    def digest(self) -> str:
        """64 hexadecimal digits."""
        return self.sha256.removeprefix("sha256:")


class TenantQuota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a tenant may have, over all gateways; None: as much as it likes.

    concurrency: requests that wait or run. max_queued: of them, waiting at one gateway.
    """

    requests_per_minute: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    tokens_per_minute: Annotated[int, Meta(ge=1, le=10**12)] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    max_queued: Annotated[int, Meta(ge=0, le=10**6)] | None = None


class TenantConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who may ask. namespace: whose cached pages it shares; None: its own id.

    models: what it may use; None: all. keys: sha256 of each key, in hex, or more of it. policy: how
    its requests choose a worker; None: the fleet's. weight: its share where requests wait, relative
    to others of its priority, and of a full cache. cache_share: the fraction of each worker's cache
    that it keeps while it is active. cache_cap: the fraction that may lie unused for it. debug:
    whether it may see why a request went where it went.
    """

    id: Name
    keys: Annotated[tuple[KeyDigest | KeyConfig, ...], Meta(max_length=MAX_KEYS)] = ()
    namespace: Name | None = None
    models: Annotated[tuple[str, ...], Meta(max_length=1000)] | None = None
    policy: PolicyConfig | None = None
    weight: Annotated[float, Meta(ge=0.001, le=1000)] = 1.0
    priority: Annotated[str, whole("(high|normal|low)")] = "normal"
    quota: TenantQuota = TenantQuota()
    cache_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    cache_cap: Annotated[float, Meta(ge=0, le=1)] = 1.0
    debug: bool = False

    def __post_init__(self) -> None:
        """Refuse two keys of one name, or one key under two names."""
        refuse_repeats("keys.id", [key.name for key in self.all_keys])
        refuse_repeats("keys.sha256", [key.digest for key in self.all_keys])

    @property
    def all_keys(self) -> tuple[KeyConfig, ...]:
        """Every key in its long form."""
        return tuple(KeyConfig(key) if isinstance(key, str) else key for key in self.keys)


class QuotaConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How tenants' quotas are counted.

    default_output_tokens: reserved for a choice that names no max_tokens. cached_token_share: of a
    prompt token that came from the cache, what is charged. lease_s: how long the requests of a
    gateway that died count as running.
    """

    default_output_tokens: PositiveInt = 512
    cached_token_share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    lease_s: Annotated[float, Meta(ge=1, le=3600)] = 15.0


class RedisConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What gateways share, if anything. url: also from the environment, as PANDO_REDIS_URL.

    prefix: what every key begins with. timeout_s: longest call; then Redis counts as away until a
    probe, every probe_s, passes. tenants: whether tenants are kept there. usage_days: how long.
    workers: whether the gateway links to those that wrote themselves in, looking every refresh_s.
    """

    url: Annotated[str, Meta(pattern="^(redis|rediss|unix)://")] | None = None
    prefix: Name = "pando"
    timeout_s: Annotated[float, Meta(gt=0, le=10)] = 0.2
    probe_s: Annotated[float, Meta(gt=0, le=60)] = 0.5
    tenants: bool = True
    workers: bool = False
    refresh_s: Seconds = 2.0
    usage_days: PositiveInt = 93

    def __post_init__(self) -> None:
        """Refuse a port that is none."""
        if self.url is not None:
            refuse_bad_port("url", self.url, self.url)


class AdminConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The admin API. port None: there is none; 0: any free one. keys: sha256 of each."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    keys: tuple[KeyDigest, ...] = ()
    body_bytes: PositiveInt = 64 * 1024

    def __post_init__(self) -> None:
        """Refuse an open door."""
        if self.port is not None and not self.keys:
            raise ValueError("keys is []: with a port, at least one key's sha256")


def refuse_shared_keys(tenants: Sequence[TenantConfig]) -> None:
    """Raises ValueError where two tenants hold one key, or one tenant stands there twice."""
    refuse_repeats("tenants.id", [tenant.id for tenant in tenants])
    refuse_repeats("tenants.keys", [key.digest for t in tenants for key in t.all_keys])
