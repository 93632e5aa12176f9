"""dflash beside dense attention: memory, latency, throughput and quality over the context's length.

One text grows to the longest length; at each length the model decodes behind it

    dense     over all of it, K/V in float32
    dflash    over a part of it, by a worker's rule
    dflash 8  the same with K/V in eight bits

What counts as quality: the mean divergence KL(dense || other) of the next token over a stretch of
the text, every earlier token of the stretch decoded the same way; and how many of the facts that
dense attention recalls the other one recalls too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from loadtest.long_context import (
    FACTS,
    QUESTION,
    ROOM,
    Haystack,
    Reader,
    Room,
    haystack,
    stretched,
)
from loadtest.report import Report, milliseconds
from worker.dflash import OFF, Dflash, Mode
from worker.model.formats import Formats
from worker.text.tokenizer import Tokenizer

NAME = "dflash"
COLUMNS = (
    "tokens",
    "attention",
    "K/V",
    "a step",
    "of it attention",
    "tokens/s of 4",
    "mean KL",
    "facts",
)
SHORTEST = 512
SEQUENCES = 4
STEPS = 7
STRETCH = 32
ANSWER = 8


ON = Dflash(Mode.ON)


@dataclass(frozen=True, slots=True)
class Shape:
    """longest: up to how many tokens the text grows, doubling. rule: what dflash reads of it."""

    longest: int = 32768
    rule: Dflash = ON
    threads: int = 2

    @property
    def lengths(self) -> list[int]:
        """At which the text is looked at."""
        found = [SHORTEST]
        while found[-1] * 2 <= self.longest:
            found.append(found[-1] * 2)
        return found


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to attend."""

    name: str
    formats: Formats
    is_sparse: bool


DENSE = Variant("dense", Formats(sketched_keys=True), is_sparse=False)
SPARSE = Variant("dflash", DENSE.formats, is_sparse=True)
EIGHT = Variant("dflash 8", Formats(eight_bit_kv=True, sketched_keys=True), is_sparse=True)
POOLS = ((DENSE, SPARSE), (EIGHT,))


@dataclass(frozen=True, slots=True)
class Quality:
    """logprobs: of the stretch, [STRETCH, vocab]. recalled: facts that were told right."""

    logprobs: torch.Tensor
    recalled: frozenset[str]


@dataclass(frozen=True, slots=True)
class Point:
    """A variant at a length. kl: against dense; recalled: of `known`, those that dense recalls."""

    length: int
    variant: str
    kv_bytes: int
    step_s: float
    attention_s: float
    throughput: float
    kl: float
    recalled: int
    known: int


def measure(folder: Path, shape: Shape) -> list[Point]:
    """Returns all points, by pool, length and variant. Takes minutes."""
    torch.set_num_threads(1)  # the kernels have threads of their own
    tokenizer = Tokenizer.load(folder)
    text = haystack(tokenizer, shape.longest + STRETCH)
    dense: dict[int, Quality] = {}
    points = []
    with stretched(folder, shape.longest + ROOM) as longer:
        for variants in POOLS:
            room = Room(shape.longest, SEQUENCES - 1, shape.threads)
            reader = Reader(longer, room, variants[0].formats)
            for length in shape.lengths:
                reader.extend(text.ids[reader.length : length])
                for variant in variants:
                    rule = shape.rule if variant.is_sparse else OFF
                    budget = rule.budget_for(None, length, 1)
                    found = _quality(reader, tokenizer, text, budget)
                    truth = dense.setdefault(length, found)
                    points.append(_point(reader, variant, budget, (found, truth)))
            del reader
    return points


def _quality(reader: Reader, tokenizer: Tokenizer, text: Haystack, budget: int) -> Quality:
    stretch = text.ids[reader.length : reader.length + STRETCH]
    logprobs = reader.logprobs(stretch, budget)
    recalled = set()
    for fact, known_from in text.told.items():
        if known_from <= reader.length:
            asked = tokenizer.encode_literal(QUESTION + fact)
            told = tokenizer.decode(reader.answer(asked, ANSWER, budget))
            if told.strip().startswith(FACTS[fact]):
                recalled.add(fact)
    return Quality(logprobs, frozenset(recalled))


def _point(
    reader: Reader, variant: Variant, budget: int, quality: tuple[Quality, Quality]
) -> Point:
    found, truth = quality
    alone = [reader.step(budget, 1) for _ in range(STEPS)]
    reader.spread()
    together = median(reader.step(budget, SEQUENCES).whole_s for _ in range(STEPS))
    gap = (truth.logprobs.exp() * (truth.logprobs - found.logprobs)).sum(-1)
    return Point(
        reader.length,
        variant.name,
        reader.kv_bytes(sketched=variant.is_sparse),
        median(step.whole_s for step in alone),
        median(step.attention_s for step in alone),
        SEQUENCES / together,
        float(gap.mean()),
        len(truth.recalled & found.recalled),
        len(truth.recalled),
    )


def report(points: Sequence[Point], shape: Shape) -> Report:
    """All points by length, then what the longest length says."""
    ordered = sorted(points, key=lambda point: point.length)
    last = {point.variant: point for point in points if point.length == max(shape.lengths)}
    dense, sparse, eight = (last[one.name] for one in (DENSE, SPARSE, EIGHT))
    summary = {
        f"speedup_{dense.length // 1024}k": dense.attention_s / sparse.attention_s,
        "step_speedup": dense.step_s / sparse.step_s,
        "passkey": sparse.recalled / max(sparse.known, 1),
        "kl": sparse.kl,
        "kv_ratio": eight.kv_bytes / dense.kv_bytes,
        "kl_8bit": eight.kl,
        "passkey_8bit": eight.recalled / max(eight.known, 1),
    }
    return Report(NAME, COLUMNS, [_row(point) for point in ordered], summary)


def advice(points: Sequence[Point], shape: Shape) -> str:
    """Returns from which length on dflash pays here, in a sentence."""
    by_length: dict[int, dict[str, Point]] = {}
    for point in points:
        by_length.setdefault(point.length, {})[point.variant] = point
    paying = [
        length
        for length, found in by_length.items()
        if found[SPARSE.name].step_s < 0.9 * found[DENSE.name].step_s
    ]
    if not paying:
        return f"Reading {_spoken(shape.rule)}, dflash pays at none of these lengths."
    return (
        f"Reading {_spoken(shape.rule)}, dflash makes a step at least a tenth faster from "
        f"{min(paying)} tokens on; below that leave it off."
    )


def _spoken(rule: Dflash) -> str:
    return f"{rule.budget} tokens or {rule.share:.0%} of the context"


def _row(point: Point) -> list[str]:
    return [
        f"{point.length:,}",
        point.variant,
        f"{point.kv_bytes / 2**20:,.0f} MiB",
        milliseconds(point.step_s),
        milliseconds(point.attention_s),
        f"{point.throughput:.1f}",
        f"{point.kl:.2g}",
        f"{point.recalled} of {point.known}",
    ]


def draw(points: Sequence[Point], path: Path) -> None:
    """Draws a step's time, throughput, memory and divergence over the length, as SVG or PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.4), layout="constrained")
    panels: dict[str, Callable[[Point], float]] = {
        "a decode step, ms": lambda point: point.step_s * 1e3,
        "tokens/s, four sequences": lambda point: point.throughput,
        "K/V of one sequence, MiB": lambda point: point.kv_bytes / 2**20,
        "KL to dense": lambda point: max(point.kl, 1e-7),
    }
    for axes, (title, value) in zip(figure.subplots(1, 4), panels.items(), strict=True):
        for variant in (DENSE, SPARSE, EIGHT):
            own = [point for point in points if point.variant == variant.name]
            axes.plot(
                [one.length for one in own], [value(one) for one in own], "o-", label=variant.name
            )
        axes.set(title=title, xlabel="tokens of context", xscale="log", yscale="log")
        axes.grid(visible=True, alpha=0.3)
    figure.axes[0].legend()
    figure.savefig(path, metadata={"Date": None})
