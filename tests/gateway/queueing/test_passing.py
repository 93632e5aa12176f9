"""Requests of several choices behind a worker that never has room for all of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import pytest

from gateway.config import QueueConfig
from gateway.errors import GatewayError
from gateway.fleet.workers import Worker, WorkerInfo
from gateway.queueing.dispatcher import Dispatcher, Ticket
from tests.gateway.conftest import NoDoor

BOUND = 8


@dataclass
class Place:
    """A worker with room for so many sequences. placed: names, in order."""

    free: int = 0
    placed: list[str] = field(default_factory=list)
    worker: Worker = field(default_factory=lambda: Worker(WorkerInfo("w", "i", "m"), NoDoor()))


@dataclass
class Request:
    """Wants room for n sequences at one of the places."""

    name: str
    dispatcher: Dispatcher
    places: list[Place]
    n: int = 1
    narrow: Worker | None = None

    def place(self) -> bool:
        self.narrow = None
        for place in self.places:
            if self.dispatcher.keeps(place.worker):
                continue
            if self.n <= place.free:
                place.free -= self.n
                place.placed.append(self.name)
                return True
            if place.free:
                self.narrow = place.worker
        return False

    def fail(self, error: GatewayError) -> None:
        raise AssertionError(f"{self.name} waited for nothing")


class Scene:
    """A dispatcher over some places."""

    def __init__(self, num_places: int = 1):
        self.places = [Place() for _ in range(num_places)]
        loop = asyncio.get_running_loop()
        self.dispatcher = Dispatcher(QueueConfig(), loop.time, self._has_room)
        self._numbers = count()

    def _has_room(self, _: str) -> bool:
        return any(place.free and not self.dispatcher.keeps(place.worker) for place in self.places)

    def ticket(self, name: str, *, n: int = 1, own: list[Place] | None = None) -> Ticket:
        request = Request(name, self.dispatcher, own or self.places, n)
        return Ticket("m", name, f"{name}{next(self._numbers)}".encode(), request)

    async def free_one(self, place: Place | None = None) -> None:
        (place or self.places[0]).free += 1
        self.dispatcher.nudge()
        for _ in range(3):
            await asyncio.sleep(0)

    async def until_placed(self, name: str, flood: Callable[[], None]) -> int:
        """How many others were placed before it, while one sequence ends after the other."""
        placed = self.places[0].placed
        for _ in range(100):
            flood()
            await self.free_one()
            if name in placed:
                return placed.index(name)
        raise AssertionError(f"{name} starves")


@pytest.mark.parametrize("others", ["big", "others"])
@pytest.mark.parametrize("again", [False, True])
async def test_a_bounded_number_passes_one_of_several_choices(others: str, again: bool) -> None:
    scene = Scene()
    scene.dispatcher.enter(scene.ticket("big", n=4), again=again)

    def flood() -> None:
        ticket = scene.ticket("small")
        ticket.tenant_id = others
        scene.dispatcher.enter(ticket)

    assert await scene.until_placed("big", flood) == BOUND


async def test_those_that_are_overdue_get_their_room_one_after_the_other() -> None:
    scene = Scene()
    for name in ("first", "second"):
        scene.dispatcher.enter(scene.ticket(name, n=3))

    def flood() -> None:
        scene.dispatcher.enter(scene.ticket("small"))

    await scene.until_placed("second", flood)
    placed = [name for name in scene.places[0].placed if name != "small"]
    assert placed == ["first", "second"]
    assert scene.places[0].placed.count("small") <= 2 * BOUND


async def test_a_worker_is_kept_and_not_the_fleet() -> None:
    scene = Scene(num_places=2)
    narrow, wide = scene.places
    scene.dispatcher.enter(scene.ticket("big", n=4, own=[narrow]))
    for _ in range(BOUND):
        scene.dispatcher.enter(scene.ticket("small"))
        await scene.free_one(narrow)
    scene.dispatcher.enter(scene.ticket("small"))
    await scene.free_one(narrow)
    assert narrow.placed == ["small"] * BOUND
    await scene.free_one(wide)
    assert wide.placed == ["small"]
    for _ in range(3):
        await scene.free_one(narrow)
    assert narrow.placed[-1] == "big"


async def test_what_is_overdue_and_leaves_holds_up_nobody() -> None:
    scene = Scene()
    big = scene.ticket("big", n=4)
    scene.dispatcher.enter(big)
    for _ in range(BOUND + 1):
        scene.dispatcher.enter(scene.ticket("small"))
        await scene.free_one()
    assert scene.places[0].placed == ["small"] * BOUND
    scene.dispatcher.leave(big)
    for _ in range(3):
        await asyncio.sleep(0)
    assert scene.places[0].placed == ["small"] * (BOUND + 1)
    assert scene.dispatcher.num_waiting == 0


async def test_one_whose_workers_are_full_is_passed_by_any_number() -> None:
    scene = Scene(num_places=2)
    full, other = scene.places
    scene.dispatcher.enter(scene.ticket("dedicated", n=2, own=[full]))
    for _ in range(3 * BOUND):
        scene.dispatcher.enter(scene.ticket("small"))
        await scene.free_one(other)
    assert other.placed == ["small"] * 3 * BOUND
