"""Faults are thrown into a fleet under load, one after the other: what do clients see of it?

    unharmed   every request by itself: what it should say
    chaos      clients ask without end; a fault, the fleet whole again, a breath, the next fault
    quiet      nobody asks: nothing may be left of what was asked

Faults come in rounds of all kinds, each round in an order of its own, drawn by the seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from loadtest.chaos import leftovers
from loadtest.chaos.asks import asks
from loadtest.chaos.faults import FAULTS, Scene
from loadtest.chaos.fleet import Fleet, Wish, built, close
from loadtest.chaos.leftovers import Leftovers, Watch
from loadtest.chaos.load import Load, Record, unharmed
from loadtest.chaos.verdict import Outcome
from loadtest.processes import descendants

NAME = "chaos"
_NUM_ASKS = 48
_WATCH_S = 1.0
_SAID_CHARS = 600
_BREATH_S = (2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Shape:
    """How long, and what. only: names of faults; none: all."""

    minutes: float = 10.0
    seed: int = 0
    only: tuple[str, ...] = ()


@dataclass(slots=True)
class Course:
    """What a run found. told: a fault's name and whom it met, in order. preemptions: in all."""

    shape: Shape
    record: Record
    left: Leftovers = field(default_factory=Leftovers)
    told: list[str] = field(default_factory=list)
    preemptions: int = 0
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether nothing happened that must not."""
        left = self.left
        bad = self.record.count(Outcome.LOST, Outcome.WRONG)
        return not (bad or left.pages or left.quota or left.others)


async def measure(wish: Wish, shape: Shape, say: Callable[[str], None]) -> Course:
    """Runs it all. Raises FleetFailed where the fleet does not come up, or not back."""
    with tempfile.TemporaryDirectory(prefix="pando-chaos-") as name:
        fleet = await built(Path(name), wish)
        try:
            for member in fleet.members:
                member.start()
            await fleet.calm()
            course = await _through(fleet, shape, say)
        except BaseException:
            for member in fleet.members:
                say(f"{member.name}:\n{member.last_lines()}")
            raise
        finally:
            await close(fleet)
    course.left.others += [f"process {pid} is left" for pid in descendants(os.getpid())]
    return course


async def _through(fleet: Fleet, shape: Shape, say: Callable[[str], None]) -> Course:
    say("what every request should say")
    asked = asks(fleet.wish.model, _NUM_ASKS, shape.seed)
    expected = await unharmed(fleet, asked)
    record = Record(asyncio.get_running_loop().time())
    course, watch = Course(shape, record), Watch()
    load = Load(fleet, record, asked, expected)
    async with asyncio.TaskGroup() as group:
        clients = group.create_task(load.run(shape.seed))
        watching = group.create_task(_watched(fleet, watch))
        await _faults(fleet, course, shape, say)
        load.stop.set()
        await clients
        watching.cancel()
    course.seconds = record.now()
    say("quiet")
    course.left = await leftovers.look(fleet)
    course.preemptions = watch.preemptions
    course.left.others += watch.grown(fleet.members)
    refused = await leftovers.refused_in_memory(fleet, asked[2])
    course.left.quota += refused
    course.left.others += [f"{refused} requests refused from memory"] * bool(refused)
    return course


async def _watched(fleet: Fleet, watch: Watch) -> None:
    async with httpx.AsyncClient(timeout=_WATCH_S) as client:
        while True:
            await asyncio.sleep(_WATCH_S)
            watch.look(fleet.members)
            await watch.ask(fleet, client)


async def _faults(fleet: Fleet, course: Course, shape: Shape, say: Callable[[str], None]) -> None:
    rng = random.Random(shape.seed)
    record = course.record
    scene = Scene(fleet, rng, record.outage)
    waiting: list[str] = []
    seen = 0
    while record.now() < shape.minutes * 60:
        await asyncio.sleep(rng.uniform(*_BREATH_S))
        waiting = waiting or rng.sample(list(shape.only or FAULTS), len(shape.only or FAULTS))
        name = waiting.pop()
        with record.lasting(record.faults, name):
            met = await FAULTS[name](scene)
            await fleet.calm()
        course.told.append(f"{name}: {met}" if met else name)
        say(f"{record.now():5.0f} s  {course.told[-1]}; {len(record.samples)} requests ended")
        for one in record.samples[seen:]:
            if one.verdict.outcome in (Outcome.LOST, Outcome.WRONG):
                say(f"         {one.verdict.outcome.value}: {one.verdict.why[:_SAID_CHARS]}")
        seen = len(record.samples)
