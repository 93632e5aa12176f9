"""How results are shown: a table for people, one last line for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Report:
    """A workload's outcome. summary: in the order in which the last line names it."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    summary: Mapping[str, float | str]


def show(report: Report, console: Console) -> None:
    """Prints the table and, last, the summary line."""
    table = Table(*report.columns, title=report.name)
    for row in report.rows:
        table.add_row(*row)
    console.print(table)
    print(summary_line(report), flush=True)


def summary_line(report: Report) -> str:
    """Returns `name: key=value key=value`."""
    pairs = " ".join(f"{key}={number(value)}" for key, value in report.summary.items())
    return f"{report.name}: {pairs}"


def number(value: float | str) -> str:
    """Returns words and whole numbers as such, others with four significant digits."""
    if isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) else f"{value:.4g}"


def milliseconds(seconds: float) -> str:
    """Returns a duration for a table's cell."""
    return f"{seconds * 1000:,.1f} ms"
