"""Tenants as the admin API reads and writes them, wherever they are kept.

Every change reads the tenant as it is, changes it, and writes it if it still is what was read;
where somebody else was faster, it begins again, or says so if the caller named what it had read.
Then this gateway looks at once; others that share the source, within two seconds.
"""

from __future__ import annotations

import hashlib
import heapq
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from gateway.errors import Conflict, PreconditionFailed, StoreUnavailable, TenantNotFound
from gateway.fields import KeyDigest
from gateway.store.interface import StoreAway, UsageRow, UsageStore
from gateway.tenancy.keys import NewKey, make_key
from gateway.tenancy.sources import SourceAway, SourceBroken, WritableSource
from gateway.tenancy.watch import Watch
from gateway.tenant_config import MAX_KEYS, KeyConfig, TenantConfig

Change = Callable[[TenantConfig | None], TenantConfig | None]

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold for a change. etag: the state it is meant for; absent: that there is none."""

    etag: str | None = None
    absent: bool = False

    def check(self, held: TenantConfig | None) -> None:
        """Raises PreconditionFailed."""
        if self.absent and held is not None:
            raise PreconditionFailed(
                f"There is a tenant '{held.id}' already.", code="tenant_exists"
            )
        if self.etag is not None and (held is None or self.etag not in ("*", etag_of(held))):
            raise PreconditionFailed("The tenant was changed since it was read: read it again.")


ALWAYS = Condition()


@dataclass(frozen=True, slots=True)
class Listed:
    """A tenant, where it is kept, and a name of its present state."""

    config: TenantConfig
    source: str
    etag: str


@dataclass(frozen=True, slots=True)
class Page:
    """Some tenants. has_more: whether there are others behind them."""

    tenants: Sequence[Listed]
    has_more: bool


class Directory:
    """Reads and writes. kept_in None: tenants can't be written here. token: random text."""

    def __init__(
        self,
        watch: Watch,
        kept_in: WritableSource | None,
        usage: UsageStore,
        wall_clock: Callable[[], float],
        token: Callable[[int], str] = secrets.token_urlsafe,
    ):
        self._watch = watch
        self._kept_in = kept_in
        self._usage = usage
        self._wall_clock = wall_clock
        self._token = token

    @property
    def now(self) -> datetime:
        """The time by which keys expire."""
        return datetime.fromtimestamp(self._wall_clock(), UTC)

    def page(self, after: str, limit: int) -> Page:
        """The next tenants behind an id, each once, as this gateway serves them, by id."""
        ids = {tenant for _, configs in self._watch.configs() for tenant in configs}
        behind = heapq.nsmallest(limit + 1, (tenant for tenant in ids if tenant > after))
        listed = [self.get(tenant) for tenant in behind[:limit]]
        return Page(listed, has_more=len(behind) > limit)

    def has(self, tenant: str) -> bool:
        """Whether this gateway serves the tenant."""
        return any(tenant in configs for _, configs in self._watch.configs())

    def get(self, tenant: str) -> Listed:
        """One tenant. Raises TenantNotFound."""
        for source, configs in self._watch.configs():
            if tenant in configs:
                return Listed(configs[tenant], source, etag_of(configs[tenant]))
        raise TenantNotFound(f"There is no tenant '{tenant}'.", param="id")

    async def put(self, config: TenantConfig, keep_keys: bool, when: Condition = ALWAYS) -> Listed:
        """The tenant is so, created if it was not there. keep_keys: those it has, not config's."""

        def change(held: TenantConfig | None) -> TenantConfig:
            when.check(held)
            return replace(config, keys=held.keys) if keep_keys and held else config

        return await self._change(config.id, change)

    async def patch(
        self,
        tenant: str,
        patched: Callable[[TenantConfig], TenantConfig],
        when: Condition = ALWAYS,
    ) -> Listed:
        """The tenant is as `patched` makes it of what it is. Raises what that raises."""

        def change(held: TenantConfig | None) -> TenantConfig:
            when.check(held)
            return patched(_known(tenant, held))

        return await self._change(tenant, change)

    async def delete(self, tenant: str, when: Condition = ALWAYS) -> None:
        """The tenant is gone; its requests that run end by themselves."""

        def change(held: TenantConfig | None) -> None:
            when.check(_known(tenant, held))

        await self._change(tenant, change)

    async def add_key(self, tenant: str, id_: str | None, expires_at: datetime | None) -> NewKey:
        """The tenant has a new key besides those it has."""
        new = make_key(id_, self.now.replace(microsecond=0), expires_at, self._token)

        def change(held: TenantConfig | None) -> TenantConfig:
            known = _known(tenant, held)
            if any(key.name == new.config.name for key in known.all_keys):
                raise Conflict(
                    f"Tenant '{tenant}' has a key '{new.config.name}' already.",
                    param="id",
                    code="key_exists",
                )
            return replace(known, keys=(*_with_room(known, self.now), new.config))

        await self._change(tenant, change)
        return new

    async def end_key(self, tenant: str, key: str, expires_at: datetime | None) -> Listed:
        """The key is gone, or from expires_at on refused; never later than it was to be before."""

        def change(held: TenantConfig | None) -> TenantConfig:
            known = _known(tenant, held)
            if all(one.name != key for one in known.all_keys):
                raise TenantNotFound(
                    f"Tenant '{tenant}' has no key '{key}'.", param="key_id", code="key_not_found"
                )
            return replace(known, keys=_ended(known.all_keys, key, expires_at))

        return await self._change(tenant, change)

    async def usage(self, tenant: str, days: Sequence[str]) -> list[UsageRow]:
        """What the tenant used on the days, by hour. Raises TenantNotFound."""
        self.get(tenant)
        try:
            return await self._usage.usage(tenant, days)
        except StoreAway as away:
            raise StoreUnavailable(str(away)) from away

    async def _change(self, tenant: str, change: Change) -> Listed:
        """The tenant as it is after the change."""
        source = self._source_of(tenant)
        try:
            for _ in range(_ATTEMPTS):
                before = await source.get(tenant)
                after = _made(change, before)
                if await source.write(tenant, before, after):
                    await self._watch.look()
                    config = after or before
                    assert config is not None, "what is not there is not changed"
                    return Listed(config, source.name, etag_of(config))
        except SourceAway as away:
            raise StoreUnavailable(str(away)) from away
        except SourceBroken as broken:
            raise Conflict(f"{broken}.", code="source_broken") from broken
        raise Conflict(f"Others change tenant '{tenant}' all the time.", code="tenant_busy")

    def _source_of(self, tenant: str) -> WritableSource:
        """Where the tenant is, or would be, kept. Raises Conflict if it can't be written there."""
        if self._kept_in is None:
            raise Conflict(
                "Tenants cannot be written here: set tenants_file or redis.url.",
                code="no_tenant_store",
            )
        for source, configs in self._watch.configs():
            if tenant in configs and source != self._kept_in.name:
                raise Conflict(
                    f"Tenant '{tenant}' is kept in the {source} configuration and changed there.",
                    param="id",
                    code="tenant_read_only",
                )
        return self._kept_in


def etag_of(config: TenantConfig) -> str:
    """A name of the tenant's state: another one after every change."""
    return hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:16]


def _made(change: Change, before: TenantConfig | None) -> TenantConfig | None:
    """What the change makes, valid as a whole: whatever is written can be read."""
    try:
        after = change(before)
        # A changed copy is not checked against the limits of its fields.
        return None if after is None else msgspec.convert(msgspec.to_builtins(after), TenantConfig)
    except ValueError as error:
        raise Conflict(f"{error}.") from error


def _known(tenant: str, held: TenantConfig | None) -> TenantConfig:
    if held is None:
        raise TenantNotFound(f"There is no tenant '{tenant}'.", param="id")
    return held


def _with_room(tenant: TenantConfig, now: datetime) -> Sequence[KeyDigest | KeyConfig]:
    """The tenant's keys and room for one more; those that expired give way. Raises Conflict."""
    if len(tenant.keys) < MAX_KEYS:
        return tenant.keys
    kept = [key for key in tenant.all_keys if key.expires_at is None or key.expires_at > now]
    if len(kept) < MAX_KEYS:
        return kept
    raise Conflict(
        f"Tenant '{tenant.id}' has {len(kept)} keys: at most {MAX_KEYS}. End one first.",
        code="too_many_keys",
    )


def _ended(
    keys: Sequence[KeyConfig], name: str, expires_at: datetime | None
) -> tuple[KeyConfig, ...]:
    """The keys, with one gone or ending."""
    kept = []
    for key in keys:
        if key.name != name:
            kept.append(key)
        elif expires_at is not None:
            end = min(expires_at, key.expires_at) if key.expires_at else expires_at
            kept.append(replace(key, expires_at=end))
    return tuple(kept)
