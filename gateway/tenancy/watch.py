"""Follows the sources of tenants, and keeps the roster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.telemetry.tenancy import TenancyTelemetry
from gateway.tenancy.sources import Configs, Merger, Source, SourceBroken
from gateway.tenancy.tenants import Tenants
from gateway.tenant_config import TenantConfig

INLINE = "inline"
_LOOK_S = 1.0


class Watch:
    """The only writer of the roster. inline goes before sources, which go the strongest first."""

    def __init__(
        self,
        inline: Sequence[TenantConfig],
        sources: Sequence[Source],
        tenants: Tenants,
        telemetry: TenancyTelemetry,
    ):
        self._sources = sources
        self._tenants = tenants
        self._telemetry = telemetry
        self._merger = Merger(telemetry)
        self._read: dict[str, Configs | None] = {source.name: None for source in sources}
        if inline:
            self._read = {INLINE: {config.id: config for config in inline}, **self._read}
        self._looking = asyncio.Lock()
        self._merge()

    def configs(self) -> list[tuple[str, Configs]]:
        """What every source said last, the strongest first."""
        return [(name, configs or {}) for name, configs in self._read.items()]

    async def run(self) -> None:
        """Look every second, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """The roster is what the sources say now; those that can't be read stay as they were."""
        async with self._looking:
            if any([await self._look_at(source) for source in self._sources]):
                self._merge()

    async def _look_at(self, source: Source) -> bool:
        """Whether the source has other tenants than before."""
        try:
            configs = await source.read()
        except SourceBroken as broken:
            self._telemetry.source_broken(source.name, str(broken))
            return False
        self._telemetry.source_mended(source.name)
        if configs is None:
            return False
        self._read[source.name] = configs
        self._telemetry.tenants_read(source.name, len(configs))
        return True

    def _merge(self) -> None:
        self._tenants.roster = self._merger.merge(list(self._read.items()))
