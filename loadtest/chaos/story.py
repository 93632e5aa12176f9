"""What is told of a run: Markdown with its timeline as a picture, and a table for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from loadtest.chaos.faults import FAULTS
from loadtest.chaos.load import Record
from loadtest.chaos.run import NAME, Course
from loadtest.chaos.verdict import Outcome
from loadtest.report import Report, summary_line

_BIN_S = 5.0
_MOST_SAID = 20
_COLOURS: Mapping[Outcome, str] = {
    Outcome.RIGHT: "tab:green",
    Outcome.LIMITED: "tab:blue",
    Outcome.REFUSED: "tab:orange",
    Outcome.HUNG_UP: "tab:gray",
    Outcome.CUT: "tab:purple",
    Outcome.WRONG: "tab:red",
    Outcome.LOST: "black",
}


def report(course: Course) -> Report:
    """The table of outcomes, and the sums."""
    record, left = course.record, course.left
    rows = [[one.value, str(record.count(one))] for one in Outcome]
    rows += [[what, "left over"] for what in left.others]
    return Report(
        name=NAME,
        columns=("requests that ended", "count"),
        rows=rows,
        summary={
            "minutes": course.seconds / 60,
            "requests": len(record.samples),
            "lost": record.count(Outcome.LOST),
            "wrong": record.count(Outcome.WRONG),
            "leaked_pages": left.pages,
            "leaked_quota": left.quota,
            "left_over": len(left.others),
            "faults": len(record.faults),
        },
    )


def written(course: Course, folder: Path) -> None:
    """The folder has chaos.md, and pictures/chaos.svg."""
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    draw(course.record, pictures / "chaos.svg")
    (folder / "chaos.md").write_text(_page(course))


def _page(course: Course) -> str:
    record = course.record
    kinds = Counter(one.what for one in record.faults)
    parts = [
        "# Chaos",
        f"{_BEGIN}\n`{_command(course)}` (`make chaos`).",
        f"```\n{summary_line(report(course))}\n```",
        "![requests and faults over time](pictures/chaos.svg)",
        "## How requests ended",
        _table(["", "requests"], [[one.value, str(record.count(one))] for one in Outcome]),
        _ENDS,
        "By kind:",
        _by_kind(record),
        "## Faults",
        _table(
            ["fault", "times", "what is done"],
            [
                [name, str(kinds[name]), (fault.__doc__ or "").strip().replace("\n   ", "")]
                for name, fault in FAULTS.items()
                if kinds[name]
            ],
        ),
        _FAULTS_SAID,
        f"Workers preempted sequences for want of pages {course.preemptions} times.",
        "## What is left",
        _LEFT,
        "\n".join(f"* {what}" for what in course.left.others) or "Nothing was left.",
        *_bad(record),
    ]
    return "\n\n".join(parts) + "\n"


def _command(course: Course) -> str:
    shape = course.shape
    return f"python -m loadtest chaos --minutes {shape.minutes:g} --seed {shape.seed} --out docs"


def _by_kind(record: Record) -> str:
    shown = (Outcome.RIGHT, Outcome.HUNG_UP, Outcome.LIMITED, Outcome.REFUSED, Outcome.CUT)
    counts = Counter((one.kind, one.verdict.outcome) for one in record.samples)
    rows = [
        [kind, *(str(counts[kind, outcome]) for outcome in shown)]
        for kind in sorted({one.kind for one in record.samples})
    ]
    return _table(["kind", *(one.name.lower().replace("_", " ") for one in shown)], rows)


def _bad(record: Record) -> list[str]:
    found = [
        f"* {one.span.began:.1f} to {one.span.ended:.1f} s, {one.tenant} at {one.span.what}: "
        f"{one.verdict.outcome.value}: {one.verdict.why}"
        for one in record.samples
        if one.verdict.outcome in (Outcome.LOST, Outcome.WRONG)
    ]
    return ["## What must not be", "\n".join(found[:_MOST_SAID])] if found else []


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def draw(record: Record, path: Path) -> None:
    """Draws ended requests per second by outcome, and where the faults were, as SVG or PNG."""
    from matplotlib.figure import Figure

    last = max((one.span.ended for one in record.samples), default=_BIN_S)
    edges = [_BIN_S * number for number in range(int(last / _BIN_S) + 2)]
    figure = Figure(figsize=(13, 6.5), layout="constrained")
    rates, faults = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1))
    ends = {
        outcome: [s.span.ended for s in record.samples if s.verdict.outcome is outcome]
        for outcome in _COLOURS
    }
    rates.hist(
        list(ends.values()),
        bins=edges,
        weights=[[1 / _BIN_S] * len(times) for times in ends.values()],
        stacked=True,
        color=list(_COLOURS.values()),
        label=[f"{one.value}: {len(times)}" for one, times in ends.items()],
    )
    rates.set(ylabel="requests ended per second")
    rates.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    names = list(dict.fromkeys(one.what for one in record.faults))
    for one in record.faults:
        height = names.index(one.what)
        faults.barh(height, one.ended - one.began, left=one.began, color="tab:red", height=0.6)
        for axes in (rates, faults):
            axes.axvspan(one.began, one.ended, color="tab:red", alpha=0.06, linewidth=0)
    faults.set_yticks(range(len(names)), names)
    faults.set(xlabel="seconds; a bar ends when the fleet is whole again")
    faults.invert_yaxis()
    figure.savefig(path, metadata={"Date": None})


_BEGIN = """Faults thrown into a fleet under load, one after the other: two gateways that share
a Redis, three workers with the small model. Each fault is over and the fleet whole again before
the next one. Written by"""
_ENDS = """Right: the same text, calls, logprobs and finish reasons as the same fleet gave before
any fault, to its end. Every request is greedy or seeded, so there is one right answer. Refused by a
limit: only tenants that have one, with `Retry-After` and OpenAI's error body; refused while a fault
lasted: the same form. Cut: the gateway that had the request was killed or left; its client asked
the other one. Anything else is lost or wrong."""
_FAULTS_SAID = """`slow disk` is what can be had without a device of its own: a log that nobody
takes (the pipe is full, so whoever writes a line waits), and two neighbours that write and sync
4 MiB blocks on the disk where Redis syncs every write of its append-only file. `memory full` takes
away all further address space (`RLIMIT_AS`) from a worker that has just begun. A clock that jumps
is the wall clock of one process (libfaketime); clocks that only go forward go on. One worker has a
pool of K/V that is too small all the time."""
_LEFT = """Looked at a while after the last request: pages in use, sequences, requests in flight,
leases, accepted against ended requests at every worker and gateway; leases and reservations in
Redis; then Redis is killed, and every tenant may have as many requests at once as its limit says at
each gateway, from memory. Files and threads of every process against its first time under load. In
the end, processes."""
