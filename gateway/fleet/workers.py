"""The live workers by their stable names, how loaded they are, and the leases on them.

Links write here: `expect` when they are made, `join` after the hello, `report` with each step,
`leave` when the stream breaks, `heard` when an attempt ended, well or not.
A lease counts one request in flight; it is a context manager, so that no path forgets to give it
back, and it counts on the very worker object it was taken from: one that came back under the same
name starts at zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Protocol

from gateway.request import Ask, Deliver


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself. incarnation: new with every process of that name."""

    name: str
    incarnation: str
    model: str
    task: str = "generate"
    max_model_len: int = 0
    prefix_cache: str = "off"
    page_size: int = 0
    cache_tokens: int = 0
    max_running_sequences: int = 0
    version: str = ""
    vocab_size: int = 0


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """A worker's own account, all gateways' requests included; *_total since its start."""

    running_sequences: int = 0
    waiting_sequences: int = 0
    uncomputed_tokens: int = 0
    total_pages: int = 0
    used_pages: int = 0
    cached_pages: int = 0
    prompt_tokens_total: int = 0
    cached_tokens_total: int = 0
    generated_tokens_total: int = 0
    evicted_pages_total: int = 0
    preemptions_total: int = 0
    draining: bool = False


class Door(Protocol):
    """How a worker is asked; the link behind it speaks gRPC."""

    def submit(self, ask: Ask, deliver: Deliver) -> AbstractContextManager[None]:
        """Ask; events come to `deliver`. Leaving the context cancels what has not ended.

        Raises WorkerLost when the link is down.
        """
        ...


@dataclass(slots=True, eq=False)
class Worker:
    """A live worker. Only the fleet writes it."""

    info: WorkerInfo
    door: Door
    load: WorkerLoad = field(default_factory=WorkerLoad)
    in_flight: int = 0

    @property
    def name(self) -> str:
        """Its stable name."""
        return self.info.name

    def gauges(self) -> dict[str, int]:
        """What the metrics show of it."""
        return {"leases": self.in_flight, **asdict(self.load)}


class NameTaken(Exception):
    """Another link already stands for this worker name."""


class Fleet:
    """Who is live. `changed` is set whenever a worker comes or goes; its reader clears it."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._workers: dict[str, Worker] = {}
        self._known_models: set[str] = set()
        self._expected: set[str] = set()
        self._in_flight = 0

    def expect(self, address: str) -> None:
        """A worker may be there; until it was heard, which models are served is not settled."""
        self._expected.add(address)

    def heard(self, address: str) -> None:
        """What is at the address is known now: a worker that joined, or nobody."""
        self._expected.discard(address)

    def join(self, info: WorkerInfo, door: Door) -> None:
        """The worker may be routed to. Raises NameTaken."""
        if info.name in self._workers:
            raise NameTaken(info.name)
        self._workers[info.name] = Worker(info, door)
        self._known_models.add(info.model)
        self.changed.set()

    def leave(self, name: str) -> None:
        """The worker is routed to no more; its leases end with their requests."""
        del self._workers[name]
        self.changed.set()

    def report(self, name: str, load: WorkerLoad) -> None:
        """Take over a worker's own account."""
        self._workers[name].load = load

    def workers(self) -> tuple[Worker, ...]:
        """All live workers, in the order of their names."""
        return tuple(self._workers[name] for name in sorted(self._workers))

    def serving(self, model: str) -> dict[str, Worker]:
        """The live workers of a model that are not leaving, by name."""
        return {
            name: worker
            for name, worker in self._workers.items()
            if worker.info.model == model
            and worker.info.task == "generate"
            and not worker.load.draining
        }

    def models(self) -> tuple[str, ...]:
        """The models of the live workers, in order."""
        return tuple(sorted({worker.info.model for worker in self._workers.values()}))

    def knows(self, model: str) -> bool:
        """Whether the model is served, or was by a worker that may come back."""
        return model in self._known_models

    @property
    def settled(self) -> bool:
        """Whether every expected worker was tried once: an unknown model is really unknown."""
        return not self._expected

    @property
    def ready(self) -> bool:
        """Whether at least one worker is linked."""
        return bool(self._workers)

    @property
    def in_flight(self) -> int:
        """Leases held, on workers that have left as well."""
        return self._in_flight

    @contextmanager
    def lease(self, worker: Worker) -> Iterator[None]:
        """Count one request on the worker for as long as the context lasts."""
        worker.in_flight += 1
        self._in_flight += 1
        try:
            yield
        finally:
            worker.in_flight -= 1
            self._in_flight -= 1
