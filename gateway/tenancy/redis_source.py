"""Tenants in Redis, as JSON by id; every gateway looks every second whether the version is new.

Redis that comes back empty has lost them: what was known stays, and the next write puts it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from gateway.store.interface import StoreAway, TenantStore, TenantTable
from gateway.telemetry.tenancy import TenancyTelemetry
from gateway.tenancy.sources import Configs, SourceAway, SourceBroken
from gateway.tenant_config import TenantConfig


class RedisSource:
    """Satisfies WritableSource."""

    name = "redis"

    def __init__(self, store: TenantStore, telemetry: TenancyTelemetry):
        self._store = store
        self._telemetry = telemetry
        self._version: str | None = None
        self._records: Mapping[str, bytes] = {}
        self._configs: dict[str, TenantConfig] = {}

    async def read(self) -> Configs | None:
        """As Source. A record that cannot be understood leaves that tenant as it was."""
        table = await self._table(self._version)
        if table is None or table.version == self._version:
            return None
        if not table.version and self._records:
            raise SourceBroken("Redis has lost its tenants; those known stay, until one is written")
        configs = {}
        for tenant, record in table.records.items():
            if record == self._records.get(tenant) and tenant in self._configs:
                configs[tenant] = self._configs[tenant]
                continue
            try:
                configs[tenant] = _decode(tenant, record)
            except SourceBroken as error:
                self._telemetry.tenant_shadowed(tenant, self.name, str(error))
                if tenant in self._configs:
                    configs[tenant] = self._configs[tenant]
        self._version, self._records, self._configs = table.version, table.records, configs
        return configs

    async def get(self, tenant: str) -> TenantConfig | None:
        """As WritableSource."""
        table = await self._table(None)
        assert table is not None, "no version is known"
        record = table.records.get(tenant)
        if record is None and not table.version:
            record = self._records.get(tenant)
        return None if record is None else _decode(tenant, record)

    async def write(
        self, tenant: str, before: TenantConfig | None, after: TenantConfig | None
    ) -> bool:
        """As WritableSource."""
        try:
            await self._put_back()
            held = await self._held(tenant)
            if (None if held is None else _decode(tenant, held)) != before:
                return False
            record = None if after is None else msgspec.json.encode(after)
            return await self._store.write_tenant(tenant, held, record)
        except StoreAway as away:
            raise SourceAway(str(away)) from away

    async def _table(self, known: str | None) -> TenantTable | None:
        try:
            return await self._store.tenants(known)
        except StoreAway as away:
            raise SourceAway(str(away)) from away

    async def _held(self, tenant: str) -> bytes | None:
        table = await self._store.tenants(None)
        assert table is not None, "no version is known"
        return table.records.get(tenant)

    async def _put_back(self) -> None:
        """Where Redis lost its tenants, it has those again that were known here."""
        table = await self._store.tenants(self._version)
        if table is not None and not table.version:
            lost = self._records.items()
            await asyncio.gather(*(self._store.write_tenant(id_, None, r) for id_, r in lost))


def _decode(tenant: str, record: bytes) -> TenantConfig:
    try:
        config = msgspec.json.decode(record, type=TenantConfig)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise SourceBroken(f"its record in Redis can't be understood: {error}") from error
    if config.id != tenant:
        raise SourceBroken(f"its record in Redis is another tenant's, {config.id!r}")
    return config
