"""Workers and links, one row each: those that stand, and those that are looked for in vain."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from msgspec import Struct

from gateway.fleet.link import LinkStatus
from gateway.fleet.workers import Fleet, Worker

# Processes of workers that are remembered.
_MAX_INCARNATIONS = 4096
_SHORT = 12


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A worker. link: `up`, `draining` or `down`; detail: why it is down.

    seen_s: since this gateway first saw the process; linked_s: since the link stands. hit_rate: of
    all prompt tokens that the process admitted, those from its cache; None: it admitted none.
    """

    name: str
    link: str
    detail: str = ""
    model: str = ""
    version: str = ""
    prefix_cache: str = ""
    breaker: str = ""
    incarnation: str = ""
    seen_s: float | None = None
    linked_s: float | None = None
    running: int = 0
    waiting: int = 0
    in_flight: int = 0
    queued_tokens: int = 0
    used_pages: int = 0
    cached_pages: int = 0
    total_pages: int = 0
    hit_rate: float | None = None
    boundaries: int = 0
    view_stale: bool = False


class Crew:
    """Reads the fleet. Remembers when each process of a worker was first seen, as links may break.

    links: all that are kept. foreign: members that may be away. clock: the fleet's.
    """

    def __init__(
        self,
        fleet: Fleet,
        links: Callable[[], Iterable[LinkStatus]],
        foreign: tuple[str, ...],
        clock: Callable[[], float],
    ):
        self._fleet = fleet
        self._links = links
        self._foreign = foreign
        self._clock = clock
        self._seen: OrderedDict[str, float] = OrderedDict()

    def look(self) -> None:
        """Processes that are new are remembered from now on."""
        for worker in self._fleet.workers():
            self._first_seen(worker)

    def rows(self) -> list[WorkerRow]:
        """All workers that stand or are looked for, by name."""
        rows = [self._row(worker) for worker in self._fleet.workers()]
        known = {row.name for row in rows}
        down = [
            WorkerRow(name=status.label, link="down", detail=status.reason)
            for status in self._links()
            if not status.stands and status.label not in known
        ]
        known.update(row.name for row in down)
        down += [WorkerRow(name=name, link="down") for name in self._foreign if name not in known]
        return sorted(rows + down, key=lambda row: row.name)

    def _first_seen(self, worker: Worker) -> float:
        incarnation = f"{worker.name}/{worker.info.incarnation}"
        seen = self._seen.setdefault(incarnation, worker.joined_at)
        self._seen.move_to_end(incarnation)
        if len(self._seen) > _MAX_INCARNATIONS:
            self._seen.popitem(last=False)
        return seen

    def _row(self, worker: Worker) -> WorkerRow:
        info, load, now = worker.info, worker.load, self._clock()
        admitted = load.prompt_tokens_total
        return WorkerRow(
            name=worker.name,
            link="draining" if load.draining else "up",
            model=info.model,
            version=info.version,
            prefix_cache=info.prefix_cache,
            breaker="held" if worker.hold.is_on else worker.breaker.state,
            incarnation=info.incarnation[:_SHORT],
            seen_s=now - self._first_seen(worker),
            linked_s=now - worker.joined_at,
            running=load.running_sequences,
            waiting=load.waiting_sequences,
            in_flight=worker.in_flight,
            queued_tokens=worker.queued_tokens,
            used_pages=load.used_pages,
            cached_pages=load.cached_pages,
            total_pages=load.total_pages,
            hit_rate=load.cached_tokens_total / admitted if admitted else None,
            boundaries=len(worker.view),
            view_stale=worker.view.is_stale,
        )
