"""Tenants in Redis, as JSON by id; every gateway looks every second whether the version is new.

Redis that began anew has lost them: whoever knew some puts back those that are missing, and then
takes what is there. One that was deleted in that very second may come back so, as may one that was
deleted while a gateway that knew it was cut off; nobody is lost.
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
        self._epoch = ""
        self._records: Mapping[str, bytes] = {}
        self._configs: dict[str, TenantConfig] = {}

    async def read(self) -> Configs | None:
        """As Source. A record that cannot be understood leaves that tenant as it was."""
        table = await self._table(self._version)
        if table is None or table.version == self._version:
            return None
        if self._is_missed_by(table):
            table = await self._put_back(table)
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
        self._version, self._epoch = table.version, table.epoch
        self._records, self._configs = table.records, configs
        return configs

    async def get(self, tenant: str) -> TenantConfig | None:
        """As WritableSource."""
        table = await self._whole()
        record = table.records.get(tenant)
        if record is None and self._is_missed_by(table):
            record = self._records.get(tenant)
        return None if record is None else _decode(tenant, record)

    async def write(
        self, tenant: str, before: TenantConfig | None, after: TenantConfig | None
    ) -> bool:
        """As WritableSource."""
        table = await self._whole()
        if self._is_missed_by(table):
            table = await self._put_back(table)
        held = table.records.get(tenant)
        if (None if held is None else _decode(tenant, held)) != before:
            return False
        record = None if after is None else msgspec.json.encode(after)
        try:
            return await self._store.write_tenant(tenant, held, record)
        except StoreAway as away:
            raise SourceAway(str(away)) from away

    async def _whole(self) -> TenantTable:
        table = await self._table(None)
        assert table is not None, "no version is known"
        return table

    async def _table(self, known: str | None) -> TenantTable | None:
        try:
            return await self._store.tenants(known)
        except StoreAway as away:
            raise SourceAway(str(away)) from away

    def _is_missed_by(self, table: TenantTable) -> bool:
        """Whether it is of a Redis that never had what is known here."""
        return bool(self._records) and table.epoch != self._epoch

    async def _put_back(self, table: TenantTable) -> TenantTable:
        """What was known here and is missing there is there again; the table as it is then."""
        missing = [(id_, r) for id_, r in self._records.items() if id_ not in table.records]
        try:
            await asyncio.gather(*(self._store.write_tenant(id_, None, r) for id_, r in missing))
        except StoreAway as away:
            raise SourceAway(str(away)) from away
        self._telemetry.tenants_put_back(self.name, len(missing))
        table = await self._whole()
        self._epoch = table.epoch
        return table


def _decode(tenant: str, record: bytes) -> TenantConfig:
    try:
        config = msgspec.json.decode(record, type=TenantConfig)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise SourceBroken(f"its record in Redis can't be understood: {error}") from error
    if config.id != tenant:
        raise SourceBroken(f"its record in Redis is another tenant's, {config.id!r}")
    return config
