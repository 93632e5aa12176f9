"""A newcomer gets its slice of what no cache decides, never the flood."""

from __future__ import annotations

import pytest

from gateway.fleet.workers import Worker, WorkerInfo
from gateway.routing.warmup import WarmUp
from tests.gateway.conftest import NoDoor


def worker(name: str, joined_at: float) -> Worker:
    return Worker(WorkerInfo(name, "a", "tiny"), NoDoor(), joined_at=joined_at)


OLD, YOUNG = worker("old", 0), worker("young", 100)


@pytest.fixture
def warm_up() -> WarmUp:
    warm_up = WarmUp(young_s=60, share=0.25)
    warm_up.follow([OLD, YOUNG], now=100)
    return warm_up


def test_of_four_starts_the_young_one_may_have_one(warm_up: WarmUp) -> None:
    given = 0
    for _ in range(40):
        chosen = YOUNG if warm_up.gate(101)(YOUNG) else OLD
        given += chosen is YOUNG
        warm_up.started(chosen)
    assert given == 10


def test_the_old_may_always(warm_up: WarmUp) -> None:
    assert all(warm_up.gate(101)(OLD) for _ in range(10))


def test_it_is_young_for_a_while_only(warm_up: WarmUp) -> None:
    assert not warm_up.gate(159)(YOUNG)
    assert warm_up.gate(160)(YOUNG)


def test_a_fleet_of_newcomers_is_not_held_back() -> None:
    warm_up = WarmUp(young_s=60, share=0.25)
    warm_up.follow([YOUNG, worker("other", 99)], now=100)
    assert warm_up.gate(101)(YOUNG)


def test_who_left_is_forgotten_and_who_stays_keeps_its_count(warm_up: WarmUp) -> None:
    for _ in range(3):
        warm_up.started(OLD)
    assert warm_up.gate(101)(YOUNG)
    warm_up.follow([OLD, YOUNG, worker("third", 0)], now=101)
    assert warm_up.gate(101)(YOUNG)
    warm_up.follow([OLD], now=102)
    assert warm_up.gate(102)(OLD)
