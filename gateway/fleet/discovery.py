"""Where workers are: members of one protocol, each telling whenever the set may have changed.

static     the settings' list
dns        every address of a name: a headless service's pods
registry   what workers wrote into the store, as long as their leases last
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from gateway.config import DnsConfig, WorkerConfig, worker_flag
from gateway.store.interface import StoreAway, WorkerStore
from gateway.telemetry.log import EventLog

Found = Callable[[Sequence[WorkerConfig]], None]
Resolve = Callable[[str, int], Awaitable[list[str]]]


class Source(Protocol):
    """One way to find workers."""

    async def watch(self, found: Found) -> None:
        """Tell all workers again and again, for ever; an answer that fails changes nothing."""
        ...


class Discovery:
    """Several sources together: an address is wanted as long as one of them names it."""

    def __init__(self, sources: Sequence[Source], found: Found):
        self._sources = sources
        self._found = found
        self._by_source: dict[int, Sequence[WorkerConfig]] = {}

    async def watch(self) -> None:
        """Follow all sources, for ever."""
        async with asyncio.TaskGroup() as group:
            for position, source in enumerate(self._sources):
                group.create_task(source.watch(self._teller(position)))

    def _teller(self, position: int) -> Found:
        def tell(workers: Sequence[WorkerConfig]) -> None:
            self._by_source[position] = workers
            by_address: dict[str, WorkerConfig] = {}
            for source in sorted(self._by_source):
                for worker in self._by_source[source]:
                    by_address.setdefault(worker.address, worker)
            self._found(list(by_address.values()))

        return tell


class Static:
    """The workers of the settings."""

    def __init__(self, workers: Sequence[WorkerConfig]):
        self._workers = workers

    async def watch(self, found: Found) -> None:
        """As Source.watch; they never change."""
        found(self._workers)
        await asyncio.Event().wait()


class Registry:
    """Workers that wrote themselves into the store, for as long as their leases last."""

    def __init__(self, store: WorkerStore, refresh_s: float, log: EventLog):
        self._store = store
        self._refresh_s = refresh_s
        self._log = log
        self._failing = False

    async def watch(self, found: Found) -> None:
        """As Source.watch. While the store is away the last answer holds."""
        while True:
            try:
                members = await self._store.workers()
            except StoreAway as away:
                if not self._failing:
                    self._log.warning("discovery_failed", name="registry", error=str(away))
                self._failing = True
            else:
                self._failing = False
                found([worker for member in members if (worker := self._worker(member))])
            await asyncio.sleep(self._refresh_s)

    def _worker(self, member: str) -> WorkerConfig | None:
        """NAME=HOST:PORT as a worker; what is written otherwise is none."""
        try:
            return msgspec.convert(worker_flag(member), WorkerConfig)
        except msgspec.ValidationError:
            self._log.warning("registry_entry_unreadable", entry=member[:200])
            return None


async def resolve(host: str, port: int) -> list[str]:
    """Every address of a name as HOST:PORT, in order. Raises OSError."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = set()
    for family, _, _, _, address in infos:
        plain = str(address[0])
        addresses.add(f"[{plain}]:{port}" if family == socket.AF_INET6 else f"{plain}:{port}")
    return sorted(addresses)


class Dns:
    """Every address that a name has: under Kubernetes the ready pods of a headless service."""

    def __init__(self, config: DnsConfig, log: EventLog, resolve: Resolve = resolve):
        self._config = config
        self._log = log
        self._resolve = resolve
        self._failing = False

    async def watch(self, found: Found) -> None:
        """As Source.watch. A name service that fails is asked again; its last answer holds."""
        config = self._config
        while True:
            try:
                async with asyncio.timeout(config.timeout_s):
                    addresses = await self._resolve(config.name, config.port)
            except (OSError, TimeoutError) as error:
                if not self._failing:
                    self._log.warning("discovery_failed", name=config.name, error=str(error))
                self._failing = True
            else:
                self._failing = False
                found([WorkerConfig(address) for address in addresses])
            await asyncio.sleep(config.refresh_s)
