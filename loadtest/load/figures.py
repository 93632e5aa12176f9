"""Figures from raw samples: times by percentile, goodput, hits beside an oracle's, balance."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from loadtest.load.samples import Sample


class Slo(msgspec.Struct, frozen=True):
    """What an answer must keep to count as good: None asks nothing."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    def keeps(self, sample: Sample) -> bool:
        """Whether the answer came whole and in time. One token has no time per further token."""
        if not sample.is_good:
            return False
        if self.ttft_s is not None and (sample.ttft_s is None or sample.ttft_s > self.ttft_s):
            return False
        return self.tpot_s is None or sample.tpot_s is None or sample.tpot_s <= self.tpot_s


NO_SLO = Slo()


class Spread(msgspec.Struct, frozen=True):
    """Of `count` values; None where there are none."""

    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None


class Work(msgspec.Struct, frozen=True):
    """What one worker did. computed_tokens: of prompts, without what came from its cache."""

    requests: int
    computed_tokens: int
    output_tokens: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of one side, or of one tenant of it. Rates are per second of `seconds`.

    seconds: from the first request sent to the last answer's end, summed over rounds. Times in
    seconds; itl: between two events with output. hit_rate: cached of all prompt tokens, as the
    server told; None where it did not; oracle: the same of an unlimited cache. balance: the busiest
    worker's tokens over the mean's.
    """

    requests: int
    good: int
    within_slo: int
    seconds: float
    errors: dict[str, int]
    requests_per_s: float
    goodput_per_s: float
    output_tokens_per_s: float
    prompt_tokens_per_s: float
    ttft: Spread
    tpot: Spread
    itl: Spread
    end_to_end: Spread
    late: Spread
    hit_rate: float | None
    oracle: float | None
    workers: dict[str, Work]
    balance: float | None
    tenants: dict[str, Figures]


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the value below which that share lies, straight between the two nearest.

    values: ordered, at least one.
    """
    place = share * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def spread(values: Iterable[float | None]) -> Spread:
    """Returns the spread of those that are there."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return Spread(0, None, None, None, None)
    p50, p90, p99 = (percentile(ordered, share) for share in (0.5, 0.9, 0.99))
    return Spread(len(ordered), sum(ordered) / len(ordered), p50, p90, p99)


def figures(samples: Sequence[Sample], slo: Slo = NO_SLO) -> Figures:
    """Returns all figures, tenants' too where there are several."""
    tenants = _by_tenant(samples)
    own = {name: _figures(found, slo, _seconds(samples)) for name, found in tenants.items()}
    whole = _figures(samples, slo, _seconds(samples))
    return msgspec.structs.replace(whole, tenants=own if len(own) > 1 else {})


def _figures(samples: Sequence[Sample], slo: Slo, seconds: float) -> Figures:
    good = [one for one in samples if one.is_good]
    kept = sum(slo.keeps(one) for one in good)
    workers = _workers(good)

    def rate(amount: float) -> float:
        return amount / seconds if seconds else 0.0

    return Figures(
        requests=len(samples),
        good=len(good),
        within_slo=kept,
        seconds=seconds,
        errors=dict(Counter(_sentence(one) for one in samples if not one.is_good)),
        requests_per_s=rate(len(good)),
        goodput_per_s=rate(kept),
        output_tokens_per_s=rate(sum(one.completion_tokens or 0 for one in good)),
        prompt_tokens_per_s=rate(sum(one.prompt_tokens or 0 for one in good)),
        ttft=spread(one.ttft_s for one in good),
        tpot=spread(one.tpot_s for one in good),
        itl=spread(gap for one in good for gap in one.gaps_s),
        end_to_end=spread(one.end_s for one in good),
        late=spread(one.late_s for one in samples),
        hit_rate=hit_rate(good),
        oracle=oracle_rate(good),
        workers=workers,
        balance=balance(workers),
        tenants={},
    )


def hit_rate(samples: Iterable[Sample]) -> float | None:
    """Returns cached over all prompt tokens, of the requests whose server told both."""
    told = [one for one in samples if one.cached_tokens is not None and one.prompt_tokens]
    total = sum(one.prompt_tokens or 0 for one in told)
    return sum(one.cached_tokens or 0 for one in told) / total if total else None


def oracle_rate(samples: Iterable[Sample]) -> float | None:
    """Returns the hit rate of an unlimited cache.

    Each prompt's known share counts as much as its tokens, or as its units where those are unknown.
    """
    weighed = [(one.prompt_tokens or one.units, one) for one in samples if one.units]
    total = sum(weight for weight, _ in weighed)
    known = sum(weight * one.shared_units / one.units for weight, one in weighed)
    return known / total if total else None


def balance(workers: dict[str, Work]) -> float | None:
    """Returns the busiest worker's tokens, computed and made, over the mean; None without names."""
    loads = [one.computed_tokens + one.output_tokens for one in workers.values()]
    return max(loads) * len(loads) / sum(loads) if sum(loads) else None


def _workers(samples: Iterable[Sample]) -> dict[str, Work]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.worker:
            found[sample.worker].append(sample)
    return {
        name: Work(
            len(own),
            sum((one.prompt_tokens or 0) - (one.cached_tokens or 0) for one in own),
            sum(one.completion_tokens or 0 for one in own),
        )
        for name, own in sorted(found.items())
    }


def _by_tenant(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        found[sample.tenant].append(sample)
    return dict(sorted(found.items()))


def _seconds(samples: Iterable[Sample]) -> float:
    """How long each round took, summed."""
    rounds: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        rounds[sample.round].append(sample)
    return sum(
        max(one.at_s + one.end_s for one in own) - min(one.at_s for one in own)
        for own in rounds.values()
    )


def _sentence(sample: Sample) -> str:
    return f"HTTP {sample.status}" if sample.status != 200 else sample.error.split(":")[0]
