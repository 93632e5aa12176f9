"""What commands print is understood, and what they should not print does no harm."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

from rich.console import Console

from loadtest.benchmarks import said
from loadtest.report import Report, show

REPORT = Report(
    "masks",
    ("language", "mean"),
    [["a schema, of sixty optional fields " * 4, "24 us"], ["", "14 us"]],
    {"mean_us": 45.949, "invalid": 0, "agent_best": "radix"},
)


def printed(report: Report) -> str:
    """What a command prints where its output is a file."""
    out = io.StringIO()
    with redirect_stdout(out):
        show(report, Console(file=out, width=int(said.ENVIRONMENT["COLUMNS"])))
    return out.getvalue()


def test_what_a_report_shows_is_read_back() -> None:
    found = said.read(f"starting\n{printed(REPORT)}")
    assert found.figures == {"mean_us": "45.95", "invalid": "0", "agent_best": "radix"}
    assert found.columns == REPORT.columns
    assert found.rows == tuple(
        tuple(one.strip()[: said.MAX_CELL_CHARS] for one in row) for row in REPORT.rows
    )


def test_the_last_of_several_reports_counts() -> None:
    other = Report("other", ("x",), [["1"]], {"x": 1})
    found = said.read(printed(REPORT) + printed(other) + "a warning at the very end\n")
    assert found == said.Said({"x": "1"}, ("x",), (("1",),))


def test_without_a_table_the_lines_in_front_are_kept() -> None:
    lines = "\n\n".join(f"line {number} {'x' * 500}" for number in range(50))
    found = said.read(f"{lines}\nkernels: x=1\n")
    assert len(found.text) == said.MAX_LINES
    assert found.text[-1] == f"line 49 {'x' * 500}"[: said.MAX_LINE_CHARS]
    assert said.read(lines).text == ()


def test_words_are_no_figures() -> None:
    assert said.read("") == said.Said()
    assert said.read("nothing here\nsee a=1 or b\n").figures == {}
    assert said.read("kernels: decode=0.7").figures == {"decode": "0.7"}
    assert said.read("page: life_us=0.29 rows_us=170\n").figures == {
        "life_us": "0.29",
        "rows_us": "170",
    }


def test_what_cannot_be_printed_is_left_out() -> None:
    found = said.read("\x1b[31mx\x00\n\x07 name: a=1\x1b b=\x002\n name: c=3\r\n")
    assert found.figures == {"c": "3"}
    assert len(said.read(f"x: a={'9' * 10_000}").figures["a"]) == said.MAX_CELL_CHARS
