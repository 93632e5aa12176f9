"""What is told of a run."""

from __future__ import annotations

from pathlib import Path

from loadtest.chaos.leftovers import Leftovers
from loadtest.chaos.load import Record, Sample
from loadtest.chaos.run import Course, Shape
from loadtest.chaos.story import report, written
from loadtest.chaos.verdict import Outcome, Span, Verdict
from loadtest.report import summary_line


def course(*outcomes: Outcome, left: Leftovers | None = None) -> Course:
    record = Record(0.0, faults=[Span("worker killed", 2, 4)])
    for number, outcome in enumerate(outcomes):
        span = Span("gateway-0", number, number + 1)
        record.samples.append(Sample(span, "free", "a chat", Verdict(outcome, "it said so")))
    return Course(Shape(10, 3), record, left or Leftovers(), seconds=600)


def test_a_run_is_good_only_when_nothing_is_lost_wrong_or_left() -> None:
    fine = (Outcome.RIGHT, Outcome.LIMITED, Outcome.REFUSED, Outcome.HUNG_UP, Outcome.CUT)
    assert course(*fine).is_good
    assert not course(Outcome.RIGHT, Outcome.LOST).is_good
    assert not course(Outcome.RIGHT, Outcome.WRONG).is_good
    for left in (Leftovers(pages=1), Leftovers(quota=1), Leftovers(others=["a process"])):
        assert not course(Outcome.RIGHT, left=left).is_good


def test_the_last_line_has_the_sums() -> None:
    told = report(course(Outcome.RIGHT, Outcome.LOST, left=Leftovers(pages=2, quota=1)))
    assert summary_line(told) == (
        "chaos: minutes=10 requests=2 lost=1 wrong=0"
        " leaked_pages=2 leaked_quota=1 left_over=0 faults=1"
    )


def test_the_page_names_faults_ends_and_what_must_not_be(tmp_path: Path) -> None:
    written(course(Outcome.RIGHT, Outcome.WRONG, left=Leftovers(others=["a process"])), tmp_path)
    page = (tmp_path / "chaos.md").read_text()
    assert "| worker killed | 1 | kill -9; it comes back. |" in page
    assert "wrong: it said so" in page
    assert "* a process" in page
    assert "--minutes 10 --seed 3" in page
    assert "worker killed" in (tmp_path / "pictures" / "chaos.svg").read_text()
