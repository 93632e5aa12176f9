"""What the prefix caches themselves cost, without a model: a match, a store, an eviction.

A cache is filled with prompts in groups: each group shares a stem, and a prompt leaves its stem at
a random token. Then every operation is timed on the full cache. Last, the cost that a request
without any hit pays (match, store, give back, evict), to be held against the time that its prompt
takes to compute.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median

from loadtest.report import Report
from worker.cache.block_hash import BlockHashCache
from worker.cache.interface import PrefixCache
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import CacheScope

NAME = "caches"
CACHES: dict[str, Callable[[PagePool], PrefixCache]] = {
    "radix": RadixCache,
    "block": BlockHashCache,
}
COLUMNS = ("cache", "match us", "store us", "give back us", "evict us/page", "request us, no hit")
VOCABULARY = 49152
REPEATS = 5
# What a request without hits pays is held against its prompt on an engine as fast as this.
ENGINE_TOKENS_S = 10_000
SCOPE = CacheScope()


@dataclass(frozen=True, slots=True)
class Shape:
    """num_prompts of prompt_tokens each, in groups that share a stem of stem_tokens."""

    num_prompts: int = 1000
    prompt_tokens: int = 4096
    stem_tokens: int = 3000
    num_stems: int = 40
    page_size: int = 16
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Medians in microseconds."""

    match_us: float
    store_us: float
    give_back_us: float
    evict_page_us: float
    no_hit_us: float


def prompts(shape: Shape) -> list[bytes]:
    """Returns the packed prompts in random order."""
    rng = random.Random(shape.seed)
    stems = [_tokens(rng, shape.stem_tokens) for _ in range(shape.num_stems)]
    made = []
    for number in range(shape.num_prompts):
        shared = stems[number % shape.num_stems][: 4 * rng.randrange(16, shape.stem_tokens)]
        made.append(shared + _tokens(rng, shape.prompt_tokens - len(shared) // 4))
    rng.shuffle(made)
    return made


def measure(cache: str, shape: Shape) -> Outcome:
    """Returns the medians of one cache on a pool that holds everything."""
    pages_each = -(-shape.prompt_tokens // shape.page_size)
    index = CACHES[cache](PagePool(shape.num_prompts * pages_each, shape.page_size))
    packed = prompts(shape)
    stores, gives = zip(*(_insert(index, one) for one in packed), strict=True)
    matches = [_best(partial(index.match, SCOPE, one[:-4])) for one in packed[::5]]
    rng = random.Random(shape.seed + 1)
    strangers = [_tokens(rng, shape.prompt_tokens) for _ in range(100)]
    no_hit = [_timed(partial(_insert, index, one)) for one in strangers]
    index.pool.allocate(index.pool.num_free)
    evictions = [_timed(partial(index.pool.allocate, pages_each)) / pages_each for _ in strangers]
    return Outcome(*(1e6 * median(x) for x in (matches, stores, gives, evictions, no_hit)))


def report(outcomes: Mapping[str, Outcome], shape: Shape) -> Report:
    """Returns the table, and of each figure the worst cache's."""
    prompt_us = 1e6 * shape.prompt_tokens / ENGINE_TOKENS_S
    summary = {
        "match_us": max(one.match_us for one in outcomes.values()),
        "insert_us": max(one.store_us for one in outcomes.values()),
        "zero_hit_cost": max(one.no_hit_us for one in outcomes.values()) / prompt_us,
    }
    rows = [
        [
            name,
            f"{one.match_us:.1f}",
            f"{one.store_us:.1f}",
            f"{one.give_back_us:.1f}",
            f"{one.evict_page_us:.2f}",
            f"{one.no_hit_us:.1f}",
        ]
        for name, one in outcomes.items()
    ]
    return Report(NAME, COLUMNS, rows, summary)


def _insert(index: PrefixCache, tokens: bytes) -> tuple[float, float]:
    """Takes a prompt through the cache; returns the seconds of storing and of giving back."""
    pool = index.pool
    num_tokens = len(tokens) // 4
    held = index.hold(SCOPE, index.match(SCOPE, tokens[:-4]).pages)
    fresh = pool.allocate(-(-num_tokens // pool.page_size) - len(held.pages))
    assert fresh is not None
    held.pages += fresh
    store = _timed(lambda: index.commit(held, tokens, num_tokens))
    index.step_done()
    return store, _timed(lambda: index.finish(held, tokens, num_tokens))


def _best(action: Callable[[], object]) -> float:
    return min(_timed(action) for _ in range(REPEATS))


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _tokens(rng: random.Random, count: int) -> bytes:
    return array("i", rng.choices(range(VOCABULARY), k=count)).tobytes()
