"""What many prompts begin with counts less, the more there are for each worker."""

from __future__ import annotations

import pytest

from gateway.routing.demand import Demand

A, B = b"a" * 16, b"b" * 16


def asked(demand: Demand, digest: bytes, times: int, now: float = 0.0) -> Demand:
    for _ in range(times):
        demand.add(digest, now)
    return demand


def test_a_boundary_of_few_prompts_counts_whole() -> None:
    assert Demand().share(A, num_workers=4, now=0) == 1
    assert asked(Demand(), A, 4).share(A, num_workers=4, now=0) == 1


def test_of_many_prompts_a_worker_has_its_part() -> None:
    demand = asked(Demand(), A, 40)
    assert demand.share(A, num_workers=4, now=0) == 0.1
    assert demand.share(B, num_workers=4, now=0) == 1


def test_demand_halves_in_time() -> None:
    demand = asked(Demand(half_life_s=100), A, 8)
    assert demand.count(A, now=100) == pytest.approx(4)
    demand.add(A, now=100)
    assert demand.count(A, now=100) == pytest.approx(5)


def test_what_was_longest_without_a_prompt_is_forgotten() -> None:
    demand = Demand(max_boundaries=2)
    for digest in (A, B, A, b"c"):
        demand.add(digest, 0)
    assert len(demand) == 2
    assert demand.count(A, 0) == 2
    assert demand.count(B, 0) == 0


def test_a_million_boundaries_leave_as_many_as_allowed() -> None:
    demand = Demand(max_boundaries=1000)
    for number in range(1_000_000):
        demand.add(number.to_bytes(16, "little"), number)
    assert 980 <= len(demand) <= 1000
