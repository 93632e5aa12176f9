"""The links to all workers that discovery finds: made as they come, given up as they go.

A worker that is no longer found may still finish what it runs, so a link that stands is kept until
it breaks by itself; only then it is not made again. So an answer of the name service that lacks a
worker for a moment costs nothing, and an address that is gone for good is not knocked at for ever.
An address that another worker takes over is told under that one's name; the link looks for it from
the next attempt on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from gateway.config import WorkerConfig
from gateway.fleet.link import LinkStatus, WorkerLink
from gateway.telemetry.log import EventLog

MakeLink = Callable[[WorkerConfig], WorkerLink]


class Links:
    """Runs one link per address. Lives on one event loop."""

    def __init__(self, make: MakeLink, log: EventLog):
        self._make = make
        self._log = log
        self._links: dict[str, WorkerLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        """How many links are kept, whether they stand or not."""
        return len(self._tasks)

    def statuses(self) -> list[LinkStatus]:
        """How each link is, whether it stands or not."""
        return [link.status for link in self._links.values()]

    def follow(self, workers: Iterable[WorkerConfig]) -> None:
        """Exactly these workers are wanted from now on; of two at one address, the later one."""
        wanted = {worker.address: worker for worker in workers}
        for address, link in self._links.items():
            link.wanted = address in wanted
            link.target = wanted.get(address, link.target)
        for address, worker in wanted.items():
            if address not in self._links:
                self._start(worker)

    async def close(self) -> None:
        """End every link at once."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, worker: WorkerConfig) -> None:
        link = self._links[worker.address] = self._make(worker)
        task = self._tasks[worker.address] = asyncio.create_task(link.run())
        task.add_done_callback(lambda done: self._ended(worker.address, done))

    def _ended(self, address: str, task: asyncio.Task[None]) -> None:
        """It is wanted no more, or failed by a defect: then it may be found and made again."""
        del self._links[address]
        del self._tasks[address]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.warning("link_ended", address=address, error=repr(error))
