"""Where tenants are kept, and the roster that all sources make together.

    inline   the gateway's own configuration; read only, and first where two name one tenant
    file     `tenants_file`, followed and written
    redis    followed and written, by every gateway that shares it

A source that cannot be read keeps what it gave last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.telemetry.tenancy import TenancyTelemetry
from gateway.tenancy.tenants import Entry, Roster, Tenant
from gateway.tenant_config import TenantConfig

Configs = Mapping[str, TenantConfig]


class SourceBroken(Exception):
    """The source cannot be read or written now. The text says why."""


class SourceAway(SourceBroken):
    """The source cannot be reached; a later try may pass."""


class Source(Protocol):
    """Keeps tenants by id."""

    name: str

    async def read(self) -> Configs | None:
        """All tenants; None if nothing changed since the last read. Raises SourceBroken."""
        ...


class WritableSource(Source, Protocol):
    """Keeps what the admin API writes."""

    async def get(self, tenant: str) -> TenantConfig | None:
        """The tenant as it is now, not as it was last read. Raises SourceBroken."""
        ...

    async def write(
        self, tenant: str, before: TenantConfig | None, after: TenantConfig | None
    ) -> bool:
        """The tenant is `after` (None: gone). False, and nothing is done, if it wasn't `before`.

        Raises SourceBroken.
        """
        ...


class Merger:
    """Makes rosters. Tenants that did not change stay the same objects."""

    def __init__(self, telemetry: TenancyTelemetry):
        self._telemetry = telemetry
        self._made: dict[str, tuple[TenantConfig, Tenant]] = {}

    def merge(self, sources: Sequence[tuple[str, Configs | None]]) -> Roster:
        """The roster of the sources, the strongest first; None: never read."""
        made: dict[str, tuple[TenantConfig, Tenant]] = {}
        entries: dict[bytes, Entry] = {}
        for name, configs in sources:
            for config in (configs or {}).values():
                if config.id in made:
                    self._pass_over(config.id, name, "a stronger source names the tenant")
                    continue
                made[config.id] = self._make(config)
                self._enter(made[config.id], name, entries)
        self._made = made
        complete = all(configs is not None for _, configs in sources)
        return Roster(entries, open=not sources, complete=complete)

    def _make(self, config: TenantConfig) -> tuple[TenantConfig, Tenant]:
        known = self._made.get(config.id)
        return known if known and known[0] == config else (config, Tenant.of(config))

    def _enter(
        self, made: tuple[TenantConfig, Tenant], source: str, entries: dict[bytes, Entry]
    ) -> None:
        config, tenant = made
        for key in config.all_keys:
            digest = bytes.fromhex(key.digest)
            if digest in entries:
                self._pass_over(config.id, source, f"another tenant has its key {key.name!r}")
                continue
            expires_at = None if key.expires_at is None else key.expires_at.timestamp()
            entries[digest] = Entry(tenant, expires_at)

    def _pass_over(self, tenant: str, source: str, reason: str) -> None:
        self._telemetry.tenant_shadowed(tenant, source, reason)
