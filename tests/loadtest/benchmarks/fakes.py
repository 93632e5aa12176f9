"""Benchmarks that take no time: modules in a folder of their own, and a page for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadtest.benchmarks.book import Book
from loadtest.benchmarks.child import Place
from loadtest.benchmarks.entry import Bound, Entry
from loadtest.benchmarks.machine import Origin
from loadtest.benchmarks.run import Bench

ORIGIN = Origin("2026-11-30", "abc1234", "2 cores")


def entry(folder: Path, name: str, program: str, limit_s: float = 60.0) -> Entry:
    """A benchmark that runs this program; of its figure x at least 3 are wanted."""
    (folder / f"fake_{name}.py").write_text(program)
    return Entry(name, (f"fake_{name}",), f"Shows {name}.", {"x": Bound(">=", 3)}, limit_s)


def page(entries: Sequence[Entry]) -> str:
    """A page with their blocks."""
    blocks = "".join(
        f"## {one.name}\n\nprose\n\n<!-- figures: {one.name} -->\n<!-- end -->\n\n"
        for one in entries
    )
    return f"# Page\n\n<!-- figures: summary -->\n<!-- end -->\n\n{blocks}the end\n"


def bench(folder: Path, entries: Sequence[Entry]) -> Bench:
    """A bench over a new page."""
    (folder / "benchmarks.md").write_text(page(entries))
    book = Book(folder, entries)
    book.check()
    return Bench(book, Place(folder / "logs", folder, farewell_s=10.0), ORIGIN, lambda _: None)
