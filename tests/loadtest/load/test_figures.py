"""Every figure agrees with a second computation."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from loadtest.load.figures import Slo, Spread, balance, figures, percentile, spread
from loadtest.load.samples import Sample


def sample(number: int, **more: object) -> Sample:
    given: dict[str, object] = {
        "conversation": f"c{number}",
        "at_s": float(number),
        "end_s": 1.0,
        "status": 200,
    }
    return Sample(**(given | more))  # type: ignore[arg-type]


def many(count: int = 300, seed: int = 0) -> list[Sample]:
    """Samples of all kinds by chance."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        gaps = tuple(rng.expovariate(20) for _ in range(rng.randrange(0, 9)))
        prompt = rng.randrange(1, 3000)
        status = rng.choice([200] * 9 + [429, 0])
        found.append(
            sample(
                number,
                round=number % 3,
                tenant=rng.choice("abc"),
                at_s=rng.uniform(0, 60),
                late_s=rng.expovariate(100),
                ttft_s=rng.expovariate(2),
                gaps_s=gaps,
                end_s=rng.uniform(1, 5),
                status=status,
                error="ConnectError: no" if status == 0 else "",
                prompt_tokens=prompt,
                completion_tokens=len(gaps) + 1,
                cached_tokens=rng.randrange(0, prompt),
                worker=rng.choice(("w0", "w1", "w2")),
                units=100,
                shared_units=rng.randrange(0, 100),
            )
        )
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
def test_percentiles_are_numpys(count: int) -> None:
    rng = random.Random(count)
    values = sorted(rng.expovariate(1) for _ in range(count))
    for share in (0, 0.01, 0.5, 0.9, 0.99, 1):
        assert percentile(values, share) == pytest.approx(np.percentile(values, share * 100))


def test_a_spread_leaves_out_what_is_not_there() -> None:
    assert spread([None]) == Spread(0, None, None, None, None)
    found = spread([3.0, None, 1.0])
    assert (found.count, found.mean, found.p50) == (2, 2.0, 2.0)


def test_times_are_those_of_whole_answers() -> None:
    samples = many()
    good = [one for one in samples if one.status == 200]
    found = figures(samples)
    gaps = [gap for one in good for gap in one.gaps_s]
    tpots = [float(np.mean(one.gaps_s)) for one in good if one.gaps_s]
    for mine, values in (
        (found.ttft, [one.ttft_s for one in good]),
        (found.end_to_end, [one.end_s for one in good]),
        (found.itl, gaps),
        (found.tpot, tpots),
        (found.late, [one.late_s for one in samples]),
    ):
        assert mine.count == len(values)
        theirs = np.percentile(np.array(values, dtype=float), [50, 90, 99])
        assert [mine.p50, mine.p90, mine.p99] == pytest.approx(list(theirs))
        assert mine.mean == pytest.approx(np.mean(np.array(values, dtype=float)))


def test_failures_are_counted_by_what_they_were() -> None:
    samples = many()
    found = figures(samples)
    assert found.errors == {
        "HTTP 429": sum(one.status == 429 for one in samples),
        "HTTP 0": sum(one.status == 0 for one in samples),
    }
    assert found.requests == 300
    assert found.good == 300 - sum(found.errors.values())
    broken = sample(0, error="the stream ended without [DONE]")
    assert figures([broken]).errors == {"the stream ended without [DONE]": 1}


def test_rates_are_over_the_time_of_all_rounds() -> None:
    samples = many()
    seconds = 0.0
    for number in range(3):
        own = [one for one in samples if one.round == number]
        ends = np.array([one.at_s + one.end_s for one in own])
        seconds += float(ends.max() - min(one.at_s for one in own))
    good = [one for one in samples if one.status == 200]
    found = figures(samples)
    assert found.seconds == pytest.approx(seconds)
    assert found.requests_per_s == pytest.approx(len(good) / seconds)
    made = sum(one.completion_tokens or 0 for one in good)
    assert found.output_tokens_per_s == pytest.approx(made / seconds)
    sent = sum(one.prompt_tokens or 0 for one in good)
    assert found.prompt_tokens_per_s == pytest.approx(sent / seconds)


def test_goodput_counts_what_keeps_every_limit() -> None:
    samples = many()
    slo = Slo(0.4, 0.06)
    kept = 0
    for one in samples:
        in_time = one.ttft_s is not None and one.ttft_s <= 0.4
        even = not one.gaps_s or float(np.mean(one.gaps_s)) <= 0.06
        kept += one.status == 200 and in_time and even
    found = figures(samples, slo)
    assert 0 < kept < found.good
    assert found.within_slo == kept
    assert found.goodput_per_s == pytest.approx(kept / found.seconds)
    assert figures(samples).within_slo == found.good


def test_an_answer_without_a_first_token_keeps_no_limit_on_it() -> None:
    silent = sample(0, ttft_s=None, completion_tokens=0)
    assert not Slo(ttft_s=1.0).keeps(silent)
    assert Slo(tpot_s=1.0).keeps(silent)
    assert not Slo().keeps(sample(0, status=500))


def test_hits_are_weighed_by_tokens() -> None:
    samples = many()
    good = [one for one in samples if one.status == 200]
    total = sum(one.prompt_tokens or 0 for one in good)
    found = figures(samples)
    assert found.hit_rate == pytest.approx(sum(one.cached_tokens or 0 for one in good) / total)
    known = sum((one.prompt_tokens or 0) * one.shared_units / 100 for one in good)
    assert found.oracle == pytest.approx(known / total)
    untold = [sample(0, prompt_tokens=10), sample(1, prompt_tokens=30, cached_tokens=15)]
    assert figures(untold).hit_rate == 0.5
    assert figures([sample(0)]).hit_rate is None


def test_balance_is_the_busiest_workers_work_over_the_mean() -> None:
    samples = many()
    loads: Counter[str] = Counter()
    for one in samples:
        if one.status == 200:
            computed = (one.prompt_tokens or 0) - (one.cached_tokens or 0)
            loads[one.worker] += computed + (one.completion_tokens or 0)
    found = figures(samples)
    assert found.balance == pytest.approx(max(loads.values()) / np.mean(list(loads.values())))
    done = {name: work.computed_tokens + work.output_tokens for name, work in found.workers.items()}
    assert done == loads
    assert balance({}) is None


def test_tenants_have_figures_of_their_own() -> None:
    samples = many()
    found = figures(samples, Slo(ttft_s=0.5))
    assert list(found.tenants) == ["a", "b", "c"]
    for name, own in found.tenants.items():
        alone = figures([one for one in samples if one.tenant == name], Slo(ttft_s=0.5))
        assert own.ttft == alone.ttft
        assert (own.requests, own.within_slo) == (alone.requests, alone.within_slo)
        assert own.seconds == found.seconds
    assert sum(own.goodput_per_s for own in found.tenants.values()) == pytest.approx(
        found.goodput_per_s
    )
    assert figures([one for one in samples if one.tenant == "a"]).tenants == {}


def test_nothing_gives_no_figures_and_no_error() -> None:
    found = figures([])
    assert (found.requests, found.seconds, found.goodput_per_s) == (0, 0.0, 0.0)
    assert found.ttft.p50 is None
