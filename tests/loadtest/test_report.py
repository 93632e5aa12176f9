from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from loadtest.fleet import FleetWish
from loadtest.report import Report, milliseconds, number, show, summary_line

REPORT = Report("name", ("a", "b"), [["1", "2"]], {"x_cached": 1500.0, "ratio": 0.123456})


def test_the_summary_is_one_line_of_numbers() -> None:
    assert summary_line(REPORT) == "name: x_cached=1500 ratio=0.1235"


def test_the_summary_comes_last(capsys: pytest.CaptureFixture[str]) -> None:
    show(REPORT, Console())
    assert capsys.readouterr().out.splitlines()[-1] == summary_line(REPORT)


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (1e6, "1000000"), (0.00001234, "1.234e-05")])
def test_numbers_are_short_and_readable(value: float, text: str) -> None:
    assert number(value) == text


def test_durations_are_in_milliseconds() -> None:
    assert milliseconds(1.2345) == "1,234.5 ms"


def test_a_wish_becomes_the_flags_of_pando_up() -> None:
    flags = FleetWish("m", "block", 2, "512MiB").flags(8000, Path("/logs"))
    assert " ".join(flags) == (
        "--model m --prefix-cache block --workers 2 --kv-memory 512MiB --port 8000 "
        "--log-folder /logs"
    )
