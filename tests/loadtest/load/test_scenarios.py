"""Who wins is the median over rounds, and the advice follows; fleets are tried by `slow`."""

from __future__ import annotations

from itertools import permutations
from statistics import median

import msgspec
import pytest

from loadtest.load import scenarios
from loadtest.load.figures import Figures, figures
from loadtest.report import summary_line
from tests.loadtest.load.test_figures import many


def rounds(*speeds: float) -> list[Figures]:
    """A round for each, with so many requests a second."""
    told = figures(many(20))
    return [msgspec.structs.replace(told, requests_per_s=speed) for speed in speeds]


def outcomes(radix: float, block: float, off: float, short_off: float) -> scenarios.Outcomes:
    """Rounds on a machine that gets slower: only ratios within a round say something."""
    slow = (1.0, 0.5, 0.1)
    agent = {
        name: rounds(*(speed * one for one in slow))
        for name, speed in (("radix", radix), ("block", block), ("off", off))
    }
    short = {
        name: rounds(*(speed * one for one in slow))
        for name, speed in (("radix", 1.0), ("block", 1.0), ("off", short_off))
    }
    return {scenarios.AGENT: agent, scenarios.SHORT: short}


def test_who_wins_and_by_how_much_is_the_median_of_rounds() -> None:
    found = outcomes(4.0, 3.2, 1.0, 1.1)
    assert summary_line(scenarios.report(found)) == (
        "scenarios: agent_best=radix agent_radix_over_block=1.25 agent_radix_over_off=4 "
        "short_best=off short_off_over_radix=1.1"
    )
    mixed = {"radix": rounds(1, 2, 3), "off": rounds(2, 1, 4)}
    assert scenarios.over(mixed, "radix", "off") == median([0.5, 2, 0.75])


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        (outcomes(4, 3.2, 1, 1.1), ("4.00 x as fast", "1.25 x as fast as on block", "pay 10%")),
        (outcomes(4, 4.01, 1, 1.0), ("as fast as on block.", "nothing to speak of")),
        (outcomes(2, 2, 1, 0.8), ("2.00 x", "no slower with the cache")),
    ],
)
def test_the_advice_follows_from_the_figures(
    found: scenarios.Outcomes, sentences: tuple[str, ...]
) -> None:
    told = scenarios.advice(found)
    assert all(sentence in told for sentence in sentences)


def test_each_cache_begins_a_round() -> None:
    orders = [tuple(scenarios.rotated(scenarios.CACHES, number)) for number in range(3)]
    assert {order[0] for order in orders} == set(scenarios.CACHES)
    assert set(orders) <= set(permutations(scenarios.CACHES))


@pytest.mark.slow
def test_small_scenarios_run_on_the_real_model() -> None:
    found = scenarios.measure("smollm2-135m-instruct", scenarios.quick(), print)
    hits = {name: one[0].hit_rate or 0 for name, one in found[scenarios.AGENT].items()}
    assert hits["radix"] >= hits["block"] > hits["off"] == 0
    assert {one[0].hit_rate or 0 for one in found[scenarios.SHORT].values()} == {0}
