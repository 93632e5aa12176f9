"""A whole run: prompts by seed, sent to one target or two in turn, and all that is told of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loadtest.load import compared as comparing
from loadtest.load import page as pages
from loadtest.load.compared import Comparison
from loadtest.load.figures import Figures, Slo, figures
from loadtest.load.kinds import Kind
from loadtest.load.pictures import drawn
from loadtest.load.samples import Head, Sample, by_side, write
from loadtest.load.sending import Label, Plan, Sender
from loadtest.load.target import Target
from loadtest.report import Report, milliseconds

NAME = "run"
COLUMNS = ("", "what", "p50", "p90", "p99")
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Course:
    """How often and how: every round has prompts of its own, the same for each side."""

    plan: Plan
    seed: int = 0
    rounds: int = 1


async def sent(
    kind: Kind, targets: Mapping[str, Target], course: Course, progress: Callable[[str], None]
) -> list[Sample]:
    """Returns the samples of all sides and rounds. Raises LoadTestError."""
    senders = {side: Sender(target, course.plan) for side, target in targets.items()}
    found: list[Sample] = []
    for number in range(course.rounds):
        conversations = kind.conversations(random.Random(f"{course.seed} round {number}"))
        for side in sorted(senders, reverse=number % 2 == 1):
            progress(f"round {number + 1} of {course.rounds}, {side}: {targets[side].url}")
            found += await senders[side].send(conversations, Label(side, number))
    return found


@dataclass(frozen=True, slots=True)
class Told:
    """What a run's samples say, by side. comparison: where there are two sides."""

    figures: Mapping[str, Figures]
    comparison: Comparison | None


def told(samples: Sequence[Sample], slo: Slo) -> Told:
    """Returns the figures of every side and, of two, how they compare."""
    sides = by_side(samples)
    both = [sides[name] for name in sides]
    comparison = comparing.compared(both[0], both[1], slo) if len(both) > 1 else None
    return Told({name: figures(own, slo) for name, own in sides.items()}, comparison)


def keep(out: Path, head: Head, samples: Sequence[Sample], slo: Slo) -> Told:
    """The folder holds the raw samples, the figures as JSON, the pictures and the page."""
    out.mkdir(parents=True, exist_ok=True)
    write(out / "samples.jsonl", head, samples)
    found = told(samples, slo)
    pictures = drawn(by_side(samples), found.figures, found.comparison)
    for name, svg in pictures.items():
        (out / f"{name}.svg").write_text(svg, "utf-8")
    document = pages.page(head, found.figures, pictures, found.comparison, slo)
    (out / "report.html").write_text(document, "utf-8")
    said = {"run": head, "slo": slo, "figures": found.figures, "comparison": found.comparison}
    (out / "figures.json").write_bytes(msgspec.json.format(msgspec.json.encode(said)))
    return found


def report(found: Told) -> Report:
    """Returns the table of every side, and a line of the first one's figures and the ratios."""
    rows = [row for side, one in found.figures.items() for row in _rows(side, one)]
    return Report(NAME, COLUMNS, rows, _summary(found))


def _summary(found: Told) -> dict[str, float]:
    first = next(iter(found.figures.values()))
    maybe = {
        "requests": first.requests,
        "failed": first.requests - first.good,
        "ttft_p50": first.ttft.p50,
        "tpot_p50": first.tpot.p50,
        "output_tokens_per_s": first.output_tokens_per_s,
        "goodput_per_s": first.goodput_per_s,
        "hit_rate": first.hit_rate,
        "oracle": first.oracle,
        "balance": first.balance,
    }
    ratios = found.comparison.by_round if found.comparison is not None else {}
    maybe |= {f"{name}_ratio": ratio.median for name, ratio in ratios.items()}
    return {name: value for name, value in maybe.items() if value is not None}


def _rows(side: str, one: Figures) -> list[list[str]]:
    rows = [
        [side, name, *(_time(value) for value in (found.p50, found.p90, found.p99))]
        for name, found in (
            ("time to first token", one.ttft),
            ("time per further token", one.tpot),
            ("between events", one.itl),
            ("end to end", one.end_to_end),
        )
    ]
    hit, oracle = (_NONE if x is None else f"{x:.1%}" for x in (one.hit_rate, one.oracle))
    rows.append([side, "hit rate, and an unlimited cache's", hit, oracle, ""])
    kept = f"{one.within_slo} of {one.requests}"
    rows.append([side, "within the SLO", kept, f"{one.goodput_per_s:.3g}/s", ""])
    return rows


def _time(value: float | None) -> str:
    return _NONE if value is None else milliseconds(value)
