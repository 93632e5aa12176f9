"""A benchmark's block, and the table of all of them, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from loadtest.benchmarks.document import anchor
from loadtest.benchmarks.entry import Bound, Entry
from loadtest.benchmarks.results import Result, Results

BUSY = (
    " **The machine was busy with other work: times are too long, and their ratios may be wrong.**"
)
_SPECIAL = re.compile(r"([\\`*\[\]<|])")


@dataclass(frozen=True, slots=True)
class Standing:
    """Of the figures of which something is wanted: how many there are, how many are so."""

    wanted: int
    met: int

    def __str__(self) -> str:
        return f"{self.met} of {self.wanted}" if self.wanted else ""


def standing(entry: Entry, result: Result) -> Standing:
    """Returns how a result stands to what is wanted."""
    bounds = {name: bound for name, bound in entry.figures.items() if bound is not None}
    met = sum(bound.holds(result.figures.get(name, "")) for name, bound in bounds.items())
    return Standing(len(bounds), met)


def block(entry: Entry, result: Result | None) -> str:
    """Returns what stands between the marks: how it was made, its table, its figures."""
    if result is None:
        return f"Not run so far: `python -m loadtest bench --only {entry.name}`."
    parts = [_made(result)]
    if result.failure:
        log = f"`reports/bench/{entry.name}.log`"
        return f"{parts[0]}\n\n**Failed**: {escaped(result.failure)}. Its output is in {log}."
    if result.rows:
        parts.append(_table(result.columns, result.rows))
    if result.text:
        parts.append(_quoted(result.text))
    parts.append(_table(("figure", "value", "wanted", ""), _figures(entry, result)))
    if entry.picture:
        parts.append(f"![{escaped(entry.shows)}](pictures/{entry.picture})")
    return "\n\n".join(parts)


def summary(entries: Iterable[Entry], results: Results, sections: Mapping[str, str]) -> str:
    """Returns a row for each. sections: the heading under which each one's block stands."""
    columns = ("benchmark", "shows", "figures", "as wanted", "on")
    rows = []
    for entry in entries:
        link = f"[{entry.name}](#{anchor(sections[entry.name])})"
        rows.append((link, escaped(entry.shows), *_stand(entry, results.get(entry.name))))
    return _lines(columns, rows)


def escaped(text: str) -> str:
    """Returns the text as one that Markdown shows as it is, in a table too."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _made(result: Result) -> str:
    took = f"{result.seconds:.0f} s ({result.cpu_s:.0f} s of CPU"
    at = f", commit {result.commit}" if result.commit else ""
    return (
        f"`{result.command}`\n{result.date}{at}: {took}; {result.others_s:.0f} s went to other "
        f"processes). {escaped(result.machine)}.{'' if result.is_quiet else BUSY}"
    )


def _quoted(lines: Iterable[str]) -> str:
    """Lines as they were printed; behind a space none is a mark of this page."""
    told = (f" {line}".replace("`", "'") for line in lines)
    return "\n".join(("```", *told, "```"))


def _figures(entry: Entry, result: Result) -> list[list[str]]:
    rows = []
    for name, value in result.figures.items():
        bound = entry.figures.get(name)
        rows.append([name, value, str(bound or ""), _judged(bound, value)])
    return rows


def _judged(bound: Bound | None, value: str) -> str:
    if bound is None:
        return ""
    return "met" if bound.holds(value) else "not met"


def _stand(entry: Entry, result: Result | None) -> tuple[str, str, str]:
    if result is None:
        return "", "not run", ""
    if result.failure:
        return "", "**failed**", result.date
    told = ", ".join(f"{name} {result.figures.get(name, '')}" for name in entry.figures)
    stands = standing(entry, result)
    mark = "" if stands.met == stands.wanted else "**"
    busy = "" if result.is_quiet else ", busy"
    return escaped(told), f"{mark}{stands}{mark}", f"{result.date}{busy}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _lines([escaped(name) for name in columns], [[escaped(one) for one in r] for r in rows])


def _lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
