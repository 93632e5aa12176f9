"""Two requests that share a long prefix: what the second one saves.

    cold   |<------------ shared prefix ------------>|<- own tokens ->|     all computed
    warm   |<------------ shared prefix ------------>|<- others ----->|     prefix from the cache
                                                     ^ differ from the first own token on

Prompts are token ids, so the lengths are exact. Every prefix is used for one pair; the first pair
only warms the process up and isn't counted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from loadtest.client import Completion
from loadtest.report import Report, milliseconds

NAME = "shared-prefix"
COLUMNS = ("cache", "prompt", "computed", "TTFT", "cached", "computed", "warm TTFT", "warm/cold")
# Of a cache that's switched off, the last line says nothing.
UNCACHED = "off"
MAX_TOKENS = 4
# Ordinary words in every vocabulary of some size: no special tokens, no single bytes.
TOKEN_IDS = range(1000, 30000)


@dataclass(frozen=True, slots=True)
class Shape:
    """How long the prompts are and how many prefixes are tried."""

    prefix_tokens: int = 1500
    own_tokens: int = 32
    num_prefixes: int = 5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """Two prompts that are equal up to the own tokens, and differ from there on."""

    cold: tuple[int, ...]
    warm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The medians of several pairs."""

    prompt_tokens: float
    cold_ttft_s: float
    cold_computed: float
    warm_ttft_s: float
    warm_cached: float
    warm_computed: float

    @property
    def warm_over_cold(self) -> float:
        """The second request's time to first token as a share of the first one's."""
        return self.warm_ttft_s / self.cold_ttft_s


class Completes(Protocol):
    """What the workload needs of a client."""

    def complete(self, model: str, prompt: Sequence[int], max_tokens: int) -> Completion:
        """Returns a completion's cost."""


def pairs(shape: Shape) -> Iterator[Pair]:
    """Yields one pair for every prefix and one to warm up; no two prompts share a first token.

    The warm prompt's first own token is never the cold one's.
    """
    rng = random.Random(shape.seed)
    for first in rng.sample(TOKEN_IDS, shape.num_prefixes + 1):
        prefix = (first, *rng.choices(TOKEN_IDS, k=shape.prefix_tokens - 1))
        starts = rng.sample(TOKEN_IDS, 2)
        owns = [(start, *rng.choices(TOKEN_IDS, k=shape.own_tokens - 1)) for start in starts]
        yield Pair(prefix + owns[0], prefix + owns[1])


def measure(client: Completes, model: str, shape: Shape) -> Outcome:
    """Returns what one fleet does with the workload; requests go one after the other."""
    results = [
        (
            client.complete(model, pair.cold, MAX_TOKENS),
            client.complete(model, pair.warm, MAX_TOKENS),
        )
        for pair in pairs(shape)
    ]
    return summarised(results[1:])


def summarised(results: Sequence[tuple[Completion, Completion]]) -> Outcome:
    """Returns the medians over (cold, warm) results."""
    cold, warm = zip(*results, strict=True)
    return Outcome(
        prompt_tokens=median(one.prompt_tokens for one in cold),
        cold_ttft_s=median(one.ttft_s for one in cold),
        cold_computed=median(one.computed_tokens for one in cold),
        warm_ttft_s=median(one.ttft_s for one in warm),
        warm_cached=median(one.cached_tokens for one in warm),
        warm_computed=median(one.computed_tokens for one in warm),
    )


def report(outcomes: Mapping[str, Outcome]) -> Report:
    """Returns the table over all caches; warm_over_cold is the first one's."""
    first = next(iter(outcomes.values()))
    summary = {
        f"{cache}_cached": outcome.warm_cached
        for cache, outcome in outcomes.items()
        if cache != UNCACHED
    }
    return Report(
        name=NAME,
        columns=COLUMNS,
        rows=[_row(cache, outcome) for cache, outcome in outcomes.items()],
        summary={**summary, "warm_over_cold": first.warm_over_cold},
    )


def _row(cache: str, outcome: Outcome) -> list[str]:
    return [
        cache,
        f"{outcome.prompt_tokens:,.0f}",
        f"{outcome.cold_computed:,.0f}",
        milliseconds(outcome.cold_ttft_s),
        f"{outcome.warm_cached:,.0f}",
        f"{outcome.warm_computed:,.0f}",
        milliseconds(outcome.warm_ttft_s),
        f"{outcome.warm_over_cold:.3f}",
    ]
