from __future__ import annotations

from collections.abc import Sequence

import pytest

from loadtest.client import Completion
from loadtest.report import summary_line
from loadtest.workloads.shared_prefix import TOKEN_IDS, Shape, measure, pairs, report

SHAPE = Shape(prefix_tokens=20, own_tokens=4, num_prefixes=3)


class Recorder:
    """Caches whole prompts to the token, and takes a second per computed token."""

    def __init__(self, page_size: int = 1) -> None:
        self.seen: list[Sequence[int]] = []
        self.page_size = page_size

    def complete(self, model: str, prompt: Sequence[int], max_tokens: int) -> Completion:
        cached = max((common(prompt, old) for old in self.seen), default=0)
        cached -= cached % self.page_size
        self.seen.append(prompt)
        ttft = float(len(prompt) - cached)
        return Completion(ttft, ttft + 1, len(prompt), cached, max_tokens)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    equal = [a == b for a, b in zip(one, other, strict=True)]
    return equal.index(False) if False in equal else len(equal)


def test_pairs_share_exactly_the_prefix() -> None:
    found = list(pairs(SHAPE))
    assert len(found) == 4
    for pair in found:
        assert len(pair.cold) == len(pair.warm) == 24
        assert common(pair.cold, pair.warm) == 20
        assert all(token in TOKEN_IDS for token in (*pair.cold, *pair.warm))


def test_prefixes_differ_from_the_first_token_on() -> None:
    assert len({pair.cold[0] for pair in pairs(SHAPE)}) == 4


def test_a_seed_repeats_and_another_differs() -> None:
    assert list(pairs(SHAPE)) == list(pairs(SHAPE))
    assert list(pairs(SHAPE)) != list(pairs(Shape(20, 4, 3, seed=1)))


@pytest.mark.parametrize(("page_size", "cached"), [(1, 20), (8, 16)])
def test_the_warm_request_is_measured_against_the_cold_one(page_size: int, cached: int) -> None:
    outcome = measure(Recorder(page_size), "m", SHAPE)
    assert (outcome.cold_computed, outcome.cold_ttft_s) == (24, 24)
    assert (outcome.warm_cached, outcome.warm_computed) == (cached, 24 - cached)
    assert outcome.warm_over_cold == (24 - cached) / 24


def test_the_last_line_names_both_caches_and_the_ratio_of_the_first() -> None:
    outcomes = {
        "radix": measure(Recorder(1), "m", SHAPE),
        "block": measure(Recorder(8), "m", SHAPE),
        "off": measure(Recorder(1000), "m", SHAPE),
    }
    found = report(outcomes)
    assert len(found.rows) == 3
    assert all(len(row) == len(found.columns) for row in found.rows)
    assert summary_line(found) == (
        "shared-prefix: radix_cached=20 block_cached=16 warm_over_cold=0.1667"
    )
