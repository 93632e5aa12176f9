from __future__ import annotations

from worker.cache.interface import SequencePages
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import CacheScope
from worker.sequence import pack_tokens


def start(cache: RadixCache, tokens: list[int]) -> SequencePages:
    """Match, hold, allocate and commit a whole prompt on pages of one token."""
    packed = pack_tokens(tokens)
    match = cache.match(CacheScope(), packed[:-4])
    held = cache.hold(CacheScope(), match.pages)
    held.pages += cache.pool.allocate(len(tokens) - len(match.pages)) or []
    cache.commit(held, packed, len(tokens))
    cache.step_done()
    return held


def test_a_sequence_finds_its_place_when_its_node_has_left_and_the_parent_is_merged() -> None:
    """The run 1 2 | 3 is cut behind Anna, what follows her is evicted, then 1 takes 2 over."""
    cache = RadixCache(PagePool(40, 1))
    pool = cache.pool
    other = start(cache, [1, 99])
    anna = start(cache, [1, 2])
    bert = start(cache, [1, 2, 3])
    start(cache, [1, 2, 4])
    cache.finish(bert, pack_tokens([1, 2, 3]), 3)
    cache.finish(other, pack_tokens([1, 99]), 2)
    # Bert's own page, then the other's: nothing else is unreferenced.
    assert pool.num_cached == 2
    rest = pool.allocate(pool.num_available)
    assert rest is not None
    cache.check()
    anna.pages.append(rest.pop())
    cache.commit(anna, pack_tokens([1, 2, 7]), 3)
    cache.step_done()
    cache.check()
    assert cache.match(CacheScope(), pack_tokens([1, 2, 7, 8])).pages == anna.pages


def test_what_hangs_below_a_run_that_is_taken_over_follows() -> None:
    """[1] -> [2] -> [3], [4] and [1] -> [9]: when 9 is gone, 1 takes 2 over, with 3 and 4."""
    cache = RadixCache(PagePool(12, 1))
    three, four = start(cache, [1, 2, 3]), start(cache, [1, 2, 4])
    nine = start(cache, [1, 9])
    cache.finish(nine, pack_tokens([1, 9]), 2)
    rest = cache.pool.allocate(cache.pool.num_available)
    assert rest is not None
    cache.check()
    cache.pool.release(rest)
    cache.finish(three, pack_tokens([1, 2, 3]), 3)
    assert cache.pool.allocate(cache.pool.num_available) is not None
    cache.check()
    assert cache.match(CacheScope(), pack_tokens([1, 2, 4])).pages == four.pages
    assert cache.match(CacheScope(), pack_tokens([1, 2, 3])).pages == four.pages[:2]
