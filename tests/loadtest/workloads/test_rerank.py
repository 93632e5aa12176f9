from __future__ import annotations

from loadtest.report import summary_line
from loadtest.workloads.rerank import Outcome, Shape, report


def outcome(seconds: float, *scores: float) -> Outcome:
    return Outcome(seconds, 1000, 800, [list(scores), list(scores)])


def test_the_last_line_says_how_much_sooner_and_how_equal() -> None:
    told = report({"radix": outcome(2.0, 0.5, 0.25), "off": outcome(5.0, 0.5, 0.25)}, Shape())
    assert summary_line(told) == "rerank: speedup=2.5 max_abs_diff=0"
    told = report({"radix": outcome(2.0, 0.5, 0.25), "off": outcome(5.0, 0.5, 0.5)}, Shape())
    assert told.summary["max_abs_diff"] == 0.25
    assert [row[0] for row in told.rows] == ["radix", "off"]
