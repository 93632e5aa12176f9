"""Benchmarks one after the other: each one's result is in the document as soon as it is known."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loadtest.benchmarks import child
from loadtest.benchmarks.book import Book
from loadtest.benchmarks.child import Ended, Place
from loadtest.benchmarks.entry import Entry
from loadtest.benchmarks.machine import Origin
from loadtest.benchmarks.results import Result
from loadtest.benchmarks.said import Said, clean, read
from loadtest.benchmarks.shown import standing
from loadtest.report import Report

NAME = "bench"
COLUMNS = ("benchmark", "s", "CPU s", "others, CPU s", "as wanted")
# Of a failed command's output, its end is told.
_WORDS = 160


@dataclass(slots=True)
class Course:
    """What was run, in order; whether somebody ended it before its end."""

    done: list[tuple[Entry, Result]] = field(default_factory=list)
    is_interrupted: bool = False

    @property
    def num_failed(self) -> int:
        """How many gave no figures."""
        return sum(bool(result.failure) for _, result in self.done)


@dataclass(frozen=True, slots=True)
class Bench:
    """book: where results go. place: where commands run. say: tells how far it is."""

    book: Book
    place: Place
    origin: Origin
    say: Callable[[str], None]

    def run(self, entries: Sequence[Entry]) -> Course:
        """Every entry's command has run, whatever became of the others, or all was interrupted."""
        course = Course()
        self.book.pictures.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            self.say(f"{entry.name}: {entry.words}")
            try:
                result = self.measure(entry)
            except KeyboardInterrupt:
                course.is_interrupted = True
                return course
            self.book.keep(entry.name, result)
            course.done.append((entry, result))
            self.say(f"    {result.failure or 'done'}, {result.seconds:.0f} s")
        return course

    def measure(self, entry: Entry) -> Result:
        """Returns what one command gave, or why it gave nothing."""
        command = [sys.executable, "-m", *entry.arguments(self.book.pictures)]
        ended = child.run(entry.name, command, entry.limit_s, self.place)
        said = read(ended.output)
        failure = failure_of(entry, ended, said)
        kept = Said() if failure else said
        origin = self.origin
        return Result(
            command=entry.words,
            date=origin.date,
            commit=origin.commit,
            machine=origin.machine,
            seconds=round(ended.seconds, 1),
            cpu_s=round(ended.cpu_s, 1),
            others_s=round(ended.others_s, 1),
            failure=failure,
            figures=kept.figures,
            columns=kept.columns,
            rows=kept.rows,
            text=kept.text,
        )


def failure_of(entry: Entry, ended: Ended, said: Said) -> str:
    """Returns why there are no figures; empty where there are."""
    if ended.status is None:
        return f"ended after {entry.limit_s:g} s, its limit"
    if ended.status != 0:
        last = clean(ended.output.strip().rpartition("\n")[2])[:_WORDS]
        return f"status {ended.status}, behind the words: {last or 'none'}"
    if not said.figures:
        return "its last line has no figures"
    missing = [name for name in entry.figures if name not in said.figures]
    return f"its last line has no {', '.join(missing)}" if missing else ""


def report(course: Course) -> Report:
    """A row for each, and the sums."""
    stands = [standing(entry, result) for entry, result in course.done if not result.failure]
    rows = [
        [
            entry.name,
            f"{result.seconds:.0f}",
            f"{result.cpu_s:.0f}",
            f"{result.others_s:.0f}",
            "failed" if result.failure else str(standing(entry, result)),
        ]
        for entry, result in course.done
    ]
    summary = {
        "benchmarks": len(course.done),
        "failed": course.num_failed,
        "wanted": sum(one.wanted for one in stands),
        "met": sum(one.met for one in stands),
        "seconds": sum(result.seconds for _, result in course.done),
    }
    return Report(NAME, COLUMNS, rows, summary)
