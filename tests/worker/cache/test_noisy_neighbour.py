"""One account floods the cache with prompts that nobody sends again; what do the others lose?"""

from __future__ import annotations

import random
from array import array

import pytest

from worker.cache.block_hash import BlockHashCache
from worker.cache.eviction import Eviction
from worker.cache.interface import PrefixCache
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import CacheScope

PAGE = 4
POOL_PAGES = 700
# Four tenants with five prompts each, of twenty pages and a question; each asks once per round.
TENANTS = [f"tenant-{number}".encode() for number in range(4)]
NUM_PREFIXES, PREFIX_LEN, QUESTION_LEN = 5, 80, 8
ROUNDS, WARM_UP = 150, 30
FLOOD = 10

Kind = type[RadixCache] | type[BlockHashCache]


def ask(cache: PrefixCache, scope: CacheScope, tokens: list[int]) -> int:
    """Serves one request; returns the prompt tokens that the cache gave."""
    packed = array("i", tokens).tobytes()
    match = cache.match(scope, packed[:-4])
    held = cache.hold(scope, match.pages)
    fresh = cache.pool.allocate(-(-len(tokens) // PAGE) - len(match.pages), scope.account)
    assert fresh is not None
    held.pages += fresh
    cache.commit(held, packed, len(tokens))
    cache.step_done()
    cache.finish(held, packed, len(tokens))
    return len(match.pages) * PAGE


def hit_tokens(
    kind: type[RadixCache] | type[BlockHashCache], eviction: Eviction, flood: int
) -> int:
    """What the four tenants get from the cache, with so many strangers' prompts per round."""
    cache = kind(PagePool(POOL_PAGES, PAGE, eviction=eviction))
    rng = random.Random(7)
    noise = CacheScope.of(b"noise")
    scopes = [CacheScope.of(name) for name in TENANTS]
    hits = 0
    for round_number in range(ROUNDS):
        for number, scope in enumerate(scopes):
            first = 1000 * (round_number % NUM_PREFIXES) + 100_000 * number
            question = [rng.randrange(10**8) for _ in range(QUESTION_LEN)]
            found = ask(cache, scope, [*range(first, first + PREFIX_LEN), *question])
            hits += found if round_number >= WARM_UP else 0
        for _ in range(flood):
            ask(cache, noise, [rng.randrange(10**8) for _ in range(PREFIX_LEN + QUESTION_LEN)])
    cache.check()
    return hits


@pytest.mark.parametrize("kind", [RadixCache, BlockHashCache])
def test_a_flood_costs_the_others_nothing_to_speak_of(kind: Kind) -> None:
    quiet = hit_tokens(kind, "fair", flood=0)
    assert quiet > 0.8 * (ROUNDS - WARM_UP) * len(TENANTS) * PREFIX_LEN
    assert hit_tokens(kind, "fair", flood=FLOOD) >= 0.95 * quiet
    # What it costs under plain LRU: this is why there are accounts.
    assert hit_tokens(kind, "lru", flood=0) == quiet
    assert hit_tokens(kind, "lru", flood=FLOOD) < 0.3 * quiet
