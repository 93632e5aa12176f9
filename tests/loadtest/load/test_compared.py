"""What is compared belongs together: the same round, and the same request of it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import msgspec
import numpy as np
import pytest

from loadtest.load.compared import compared
from loadtest.load.figures import Slo
from loadtest.load.samples import Sample
from tests.loadtest.load.test_figures import many


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides that were sent the same."""

    a: list[Sample]
    b: list[Sample]


def both() -> Pair:
    """B answers each request in a time of its own over A's: the same ratio within a round."""
    a = [
        msgspec.structs.replace(one, conversation=f"c{number // 3}")
        for number, one in enumerate(many(60))
    ]
    b = [
        msgspec.structs.replace(one, side="B", ttft_s=(one.ttft_s or 0) * (1.5 + one.round))
        for one in reversed(a)
    ]
    return Pair(a, b)


def test_ratios_are_of_the_same_round() -> None:
    pair = both()
    found = compared(pair.a, pair.b).by_round["ttft_p50"]
    assert found.rounds == pytest.approx((1.5, 2.5, 3.5))
    assert (found.least, found.median, found.largest) == pytest.approx((1.5, 2.5, 3.5))


def test_ratios_by_request_are_of_the_same_request() -> None:
    pair = both()
    good = [one for one in pair.a if one.status == 200]
    found = compared(pair.a, pair.b)
    assert found.num_pairs == len(good)
    assert found.by_request["ttft"] == pytest.approx(median(1.5 + one.round for one in good))
    assert found.by_request["end_to_end"] == 1.0


def test_what_one_side_did_not_answer_is_no_pair() -> None:
    pair = both()
    lost = next(one for one in pair.b if one.status == 200)
    rest = [msgspec.structs.replace(one, status=500) if one is lost else one for one in pair.b]
    assert compared(pair.a, rest).num_pairs == compared(pair.a, pair.b).num_pairs - 1


def test_a_round_of_one_side_only_is_left_out() -> None:
    pair = both()
    found = compared(pair.a, [one for one in pair.b if one.round != 1])
    assert found.by_round["ttft_p50"].rounds == pytest.approx((1.5, 3.5))


def test_throughput_goodput_and_hits_are_compared_too() -> None:
    pair = both()
    slo = Slo(ttft_s=0.5)
    b = [msgspec.structs.replace(one, cached_tokens=0) for one in pair.b]
    found = compared(pair.a, b, slo)
    assert found.by_round["output_tokens_per_s"].rounds == (1.0, 1.0, 1.0)
    kept = [
        [
            sum(one.status == 200 and (one.ttft_s or 0) <= 0.5 for one in side if one.round == k)
            for k in range(3)
        ]
        for side in (b, pair.a)
    ]
    ratios = np.array(kept[0]) / np.array(kept[1])
    assert found.by_round["goodput_per_s"].rounds == pytest.approx(tuple(ratios))
    good = [one for one in pair.a if one.status == 200]
    own = sum(one.cached_tokens or 0 for one in good) / sum(one.prompt_tokens or 0 for one in good)
    assert found.hit_rate_difference == pytest.approx(-own)


def test_a_figure_that_is_zero_on_one_side_has_no_ratio() -> None:
    pair = both()
    assert "goodput_per_s" not in compared(pair.a, pair.b, Slo(ttft_s=0.0)).by_round
