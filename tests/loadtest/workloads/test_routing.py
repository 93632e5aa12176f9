"""The figures of the routing workload are what their names say."""

from __future__ import annotations

import pytest

from loadtest.replay import Served
from loadtest.report import summary_line
from loadtest.traces import Piece, Recorded
from loadtest.workloads.routing import Case, Outcome, join_dip, report, tenths

REQUESTS = [Recorded(float(number), (Piece(str(number), 100),), 1) for number in range(20)]


def case(traffic: str = "synthetic", rule: str = "cost", **more: float) -> Case:
    settings = {"gateways": 1, "joins_at_s": None, **more}
    return Case(traffic, REQUESTS, 2, 10, 40.0, rule, **settings)  # type: ignore[arg-type]


def served(cached: int, loads: str = "01") -> list[Served]:
    """A worker's number per request, again and again."""
    return [
        Served(request.at_s, f"w{loads[number % len(loads)]}", 100, cached)
        for number, request in enumerate(REQUESTS)
    ]


def test_hits_and_balance_are_of_tokens() -> None:
    outcome = Outcome(case(), served(25, "0001"), pooled=0.5)
    assert outcome.hits == 0.25
    assert outcome.imbalance == 1.5


def test_a_worker_that_got_nothing_counts_in_the_mean() -> None:
    assert Outcome(case(), served(0, "0"), 1.0).imbalance == 2.0


def test_tenths_are_in_the_order_of_arrival() -> None:
    rising = [
        Served(request.at_s, "w0", 100, 5 * number) for number, request in enumerate(REQUESTS)
    ]
    assert tenths(case(), rising[::-1]) == pytest.approx([0.025 + 0.1 * k for k in range(10)])


def test_the_dip_is_the_worst_tenth_after_the_join() -> None:
    stayed = Outcome(case(), served(50), 1.0)
    dented = served(50)
    dented[3] = Served(3.0, "w0", 100, 0)
    assert join_dip(stayed, Outcome(case(joins_at_s=10.0), dented, 1.0)) == pytest.approx(0)
    dented[14], dented[15] = (Served(at, "w0", 100, 40) for at in (14.0, 15.0))
    dip = join_dip(stayed, Outcome(case(joins_at_s=10.0), dented, 1.0))
    assert dip == pytest.approx(10)


def test_the_last_line_names_the_worst_of_our_own_runs() -> None:
    outcomes = [
        Outcome(Case("synthetic", REQUESTS, 8, 10, 40.0), served(49), 0.5),
        Outcome(case("conversations"), served(50), 0.5),
        Outcome(case("agents"), served(90), 0.9),
        Outcome(case(gateways=8), served(48), 0.5),
        Outcome(case("synthetic, 9th in", joins_at_s=10.0), served(49), 0.5),
        Outcome(case(rule="round robin"), served(1), 0.5),
    ]
    line = summary_line(report(outcomes))
    assert line.startswith("routing: hit_over_pooled=0.98 imbalance=4 ")
    assert line.endswith("gateways8_loss=1 gateways8_imbalance=1 join_dip=0 late_ms=0")
