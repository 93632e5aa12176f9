"""A run against another one, in rounds that alternate: ratios of what belongs together.

A round sends the same prompts to both sides, one side after the other, and the next round begins
with the other side; so what the machine does meanwhile falls on both. A ratio is B's over A's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import msgspec

from loadtest.load.figures import NO_SLO, Figures, Slo, figures
from loadtest.load.samples import Sample

MEASURES: Mapping[str, Callable[[Figures], float | None]] = {
    "ttft_p50": lambda one: one.ttft.p50,
    "ttft_p90": lambda one: one.ttft.p90,
    "tpot_p50": lambda one: one.tpot.p50,
    "end_to_end_p50": lambda one: one.end_to_end.p50,
    "output_tokens_per_s": lambda one: one.output_tokens_per_s,
    "goodput_per_s": lambda one: one.goodput_per_s,
}


class Ratio(msgspec.Struct, frozen=True):
    """By round, in order; the least, the median and the largest of them."""

    rounds: tuple[float, ...]
    least: float
    median: float
    largest: float


class Comparison(msgspec.Struct, frozen=True):
    """B over A. by_round: of each round's figures. by_request: medians over pairs of requests.

    hit_rate_difference: B's minus A's.
    """

    by_round: dict[str, Ratio]
    by_request: dict[str, float]
    num_pairs: int
    hit_rate_difference: float | None


def order(num_rounds: int) -> list[str]:
    """Returns the sides of all rounds: AB, BA, AB, ..."""
    return ["AB" if number % 2 == 0 else "BA" for number in range(num_rounds)]


def compared(a: Sequence[Sample], b: Sequence[Sample], slo: Slo = NO_SLO) -> Comparison:
    """Returns the ratios of two sides' samples; what one side lacks is left out."""
    rounds = sorted({one.round for one in a} & {one.round for one in b})
    both = [(_of_round(b, number, slo), _of_round(a, number, slo)) for number in rounds]
    by_round = {}
    for name, measure in MEASURES.items():
        found = [_over(measure(one), measure(other)) for one, other in both]
        ratios = tuple(one for one in found if one is not None)
        if ratios:
            by_round[name] = Ratio(ratios, min(ratios), median(ratios), max(ratios))
    pairs = _pairs(a, b)
    hits = (figures(b, slo).hit_rate, figures(a, slo).hit_rate)
    difference = None if hits[0] is None or hits[1] is None else hits[0] - hits[1]
    return Comparison(by_round, _by_request(pairs), len(pairs), difference)


def _of_round(samples: Sequence[Sample], number: int, slo: Slo) -> Figures:
    return figures([one for one in samples if one.round == number], slo)


def _pairs(a: Sequence[Sample], b: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """The good answers of both sides to the same request of the same round."""
    others = {(one.round, one.conversation, one.turn): one for one in b if one.is_good}
    keys = [(one, (one.round, one.conversation, one.turn)) for one in a if one.is_good]
    return [(one, others[key]) for one, key in keys if key in others]


def _by_request(pairs: Sequence[tuple[Sample, Sample]]) -> dict[str, float]:
    measures: Mapping[str, Callable[[Sample], float | None]] = {
        "ttft": lambda one: one.ttft_s,
        "tpot": lambda one: one.tpot_s,
        "end_to_end": lambda one: one.end_s,
    }
    found = {}
    for name, measure in measures.items():
        ratios = [_over(measure(b), measure(a)) for a, b in pairs]
        there = [ratio for ratio in ratios if ratio is not None]
        if there:
            found[name] = median(there)
    return found


def _over(b: float | None, a: float | None) -> float | None:
    return b / a if b is not None and a else None
