"""What the virtual engine says of orders and tenants, on traffic small enough to reckon with."""

from __future__ import annotations

import pytest

from loadtest.report import summary_line
from loadtest.virtual_engine import Arrival, StepCost, run
from loadtest.workloads import isolation, scheduler
from loadtest.workloads.isolation import auc
from worker.cache.scope import CacheScope
from worker.order import ORDERS
from worker.request import Sampling, Stopping
from worker.sequence import SequenceSpec, pack_tokens

SMALL = scheduler.Shape(groups=6, members=8, new_tokens=4)


def arrival(number: int, at_s: float, length: int) -> Arrival:
    prompt = pack_tokens([number * 1000 + n for n in range(length)])
    spec = SequenceSpec(number, CacheScope(b"t"), prompt, Sampling(), Stopping(1))
    return Arrival(at_s, spec)


def test_time_passes_as_the_steps_cost() -> None:
    cost = StepCost(base_s=1.0, token_s=0.01, row_s=0.0)
    arrivals = [arrival(1, 0.0, 256), arrival(2, 100.0, 16)]
    served = run(scheduler.scheduler_of("first_come", 64), arrivals, cost)
    assert served.told[1].ttft_s == pytest.approx(3.56)
    assert served.told[2].ttft_s == pytest.approx(1.16)
    assert served.makespan_s == pytest.approx(101.16)
    assert served.computed_tokens == 272


def test_a_prompt_that_comes_again_is_told_as_cached() -> None:
    first = arrival(1, 0.0, 64)
    again = Arrival(50.0, SequenceSpec(2, *_rest(first.spec)))
    served = run(scheduler.scheduler_of("cache_aware", 64), [first, again])
    assert served.told[1].cached_tokens == 0
    assert served.told[2].cached_tokens == 63
    assert served.cached_tokens == 63


def _rest(spec: SequenceSpec) -> tuple[CacheScope, bytes, Sampling, Stopping]:
    return spec.scope, spec.prompt, spec.sampling, spec.stopping


@pytest.mark.parametrize("mix", scheduler.MIXES)
def test_the_cache_aware_order_has_nearly_the_best_orders_hits(mix: str) -> None:
    ours, plain = (scheduler.measure(mix, order, SMALL) for order in ORDERS)
    assert ours.hit_tokens >= 0.98 * ours.best_tokens
    assert plain.hit_tokens < 0.9 * plain.best_tokens
    assert ours.busy_p99_s <= 1.5 * plain.busy_p99_s


def test_siblings_at_once_compute_their_prefix_once() -> None:
    assert scheduler.siblings(count=16, prompt_tokens=700) <= 1.02


def test_a_flood_takes_nothing_from_quiet_tenants_and_shows_nothing() -> None:
    shape = isolation.Shape(requests=30, span_s=200.0)
    flooded = {name: isolation.measure_flood(name, shape) for name in isolation.MEMBERS}
    ours, common = flooded["cache_aware, fair"], flooded["first_come, lru"]
    assert ours.lost <= 0.05 < common.lost
    assert ours.flooded_ttft_s < common.flooded_ttft_s
    assert ours.crossed_tokens == 0
    line = summary_line(isolation.report(flooded, {"attacker": 0.5, "insider": 0.9}))
    assert line.startswith("isolation: victim_loss=")
    assert "cross_hits=0 auc=0.5 auc_insider=0.9" in line


def test_auc_is_half_for_what_tells_nothing_and_one_for_what_tells_all() -> None:
    assert auc([1.0, 2.0], [1.0, 2.0]) == 0.5
    assert auc([1.0, 2.0], [3.0, 4.0]) == 1.0
    assert auc([3.0, 4.0], [1.0, 2.0]) == 1.0
    assert auc([1.0, 3.0], [2.0]) == 0.5
