"""`python -m loadtest bench`: its options."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loadtest.benchmarks.book import Book
from loadtest.benchmarks.child import Place
from loadtest.benchmarks.entries import ENTRIES
from loadtest.benchmarks.entry import Entry
from loadtest.benchmarks.machine import Origin, commit, described
from loadtest.benchmarks.run import Bench, Course, report
from loadtest.errors import LoadTestError
from loadtest.report import show
from pando.up import ROOT

INTERRUPTED = 130
progress = Console(stderr=True)


def run_bench(
    only: Annotated[list[str] | None, typer.Option(help="These benchmarks, by name.")] = None,
    out: Annotated[
        Path, typer.Option(help="The folder of benchmarks.md, benchmarks.json and pictures.")
    ] = Path("docs"),
    long: Annotated[bool, typer.Option("--long", help="Those that take longer.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Say what there is; run nothing.")] = False,
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Run nothing: write the document from its results.")
    ] = False,
) -> None:
    """Run all benchmarks one by one; their figures stand in docs/benchmarks.md afterwards."""
    if listed:
        Console().print(table(ENTRIES))
        return
    book = Book(out.resolve(), ENTRIES)
    try:
        entries = chosen(ENTRIES, only or [], is_long=long)
        book.check()
        if rewrite:
            book.write()
            return
        course = _run(book, entries)
    except (LoadTestError, OSError) as error:
        _say(f"loadtest: {error}")
        raise typer.Exit(1) from error
    show(report(course), Console())
    if course.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(1 if course.num_failed else 0)


def _run(book: Book, entries: Sequence[Entry]) -> Course:
    today = datetime.now(UTC).date().isoformat()
    origin = Origin(today, commit(ROOT), described())
    place = Place(ROOT / "reports" / "bench", ROOT)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell ignores the first for its jobs
        signal.signal(number, signal.default_int_handler)
    return Bench(book, place, origin, _say).run(entries)


def chosen(entries: Sequence[Entry], names: Sequence[str], *, is_long: bool) -> list[Entry]:
    """Returns those of these names, or all that are long or are not. Raises LoadTestError."""
    if unknown := sorted(set(names) - {entry.name for entry in entries}):
        raise LoadTestError(
            f"benchmark {unknown[0]!r}: one of {', '.join(entry.name for entry in entries)}"
        )
    if names:
        return [entry for entry in entries if entry.name in names]
    return [entry for entry in entries if entry.is_long == is_long]


def table(entries: Sequence[Entry]) -> Table:
    """Returns what there is, for people."""
    shown = Table("name", "command", "shows", title="benchmarks")
    for entry in entries:
        name = f"{entry.name} (long)" if entry.is_long else entry.name
        shown.add_row(name, entry.words, entry.shows)
    return shown


def _say(text: str) -> None:
    progress.print(text, markup=False, highlight=False)
