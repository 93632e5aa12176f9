"""Where workers are: members of one protocol, each telling whenever the set may have changed.

static     the settings' list
dns        every address of a name: a headless service's pods
registry   what workers wrote into the store, as long as their leases last
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

import msgspec

from gateway.background import for_ever
from gateway.config import DnsConfig, WorkerConfig, worker_flag
from gateway.store.interface import StoreAway, WorkerStore
from gateway.telemetry.log import EventLog

Found = Callable[[Sequence[WorkerConfig]], None]
Resolve = Callable[[str, int], Future[list[str]]]


class Source(Protocol):
    """One way to find workers."""

    async def watch(self, found: Found) -> None:
        """Tell all workers again and again, for ever; an answer that fails changes nothing."""
        ...


class Discovery:
    """Several sources together: an address is wanted as long as one of them names it.

    Where they disagree on who is there, the first source counts, and of one source its last word:
    the registry tells the lease that ends first first.
    """

    def __init__(self, sources: Sequence[Source], found: Found, log: EventLog):
        self._sources = sources
        self._found = found
        self._log = log
        self._by_source: dict[int, Sequence[WorkerConfig]] = {}

    async def watch(self) -> None:
        """Follow all sources, for ever; one that fails is followed again, and ends no other."""
        async with asyncio.TaskGroup() as group:
            for position, source in enumerate(self._sources):
                work = partial(source.watch, self._teller(position))
                group.create_task(for_ever(work, self._log))

    def _teller(self, position: int) -> Found:
        def tell(workers: Sequence[WorkerConfig]) -> None:
            self._by_source[position] = workers
            by_address: dict[str, WorkerConfig] = {}
            for source in sorted(self._by_source):
                told = {worker.address: worker for worker in self._by_source[source]}
                for address, worker in told.items():
                    by_address.setdefault(address, worker)
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
        self._unreadable: set[str] = set()

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
                found(self._workers(members))
            await asyncio.sleep(self._refresh_s)

    def _workers(self, members: Iterable[str]) -> list[WorkerConfig]:
        """What is written as NAME=HOST:PORT; of anything else the log has one line."""
        workers, unreadable = [], set()
        for member in members:
            try:
                workers.append(msgspec.convert(worker_flag(member), WorkerConfig))
            except msgspec.ValidationError:
                unreadable.add(member)
        for member in sorted(unreadable - self._unreadable):
            self._log.warning("registry_entry_unreadable", entry=member[:200])
        self._unreadable = unreadable
        return workers


class Dns:
    """Every address that a name has: under Kubernetes the ready pods of a headless service.

    resolve: a name's addresses with the port, or OSError (`resolver`).
    """

    def __init__(self, config: DnsConfig, log: EventLog, resolve: Resolve):
        self._config = config
        self._log = log
        self._resolve = resolve
        self._failing = False
        self._question: asyncio.Future[list[str]] | None = None

    async def watch(self, found: Found) -> None:
        """As Source.watch. A name service that fails is asked again; its last answer holds.

        While it owes an answer it is asked nothing else: questions that hang do not pile up.
        """
        try:
            await self._follow(found)
        finally:
            if self._question is not None:
                self._question.cancel()
                self._question = None

    async def _follow(self, found: Found) -> None:
        config = self._config
        while True:
            try:
                addresses = await self._addresses()
            except OSError as error:  # a TimeoutError is one
                if not self._failing:
                    self._log.warning("discovery_failed", name=config.name, error=str(error))
                self._failing = True
            else:
                self._failing = False
                found([WorkerConfig(address) for address in addresses])
            await asyncio.sleep(config.refresh_s)

    async def _addresses(self) -> list[str]:
        """The answer to the open question, if there is one, else to a new one. Raises OSError."""
        config = self._config
        if self._question is None:
            self._question = asyncio.wrap_future(self._resolve(config.name, config.port))
        done, _ = await asyncio.wait([self._question], timeout=config.timeout_s)
        if not done:
            raise TimeoutError(f"no answer within {config.timeout_s} s")
        answer, self._question = self._question, None
        return answer.result()
