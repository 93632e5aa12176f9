"""To which page a boundary is tied, and when: it's told as long as what it names can be matched."""

from __future__ import annotations

import pytest

from worker.allotment import Allotment
from worker.cache.block_hash import BlockHashCache
from worker.cache.boundaries import EventKind
from worker.cache.interface import PrefixCache
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import CacheScope
from worker.request import Sampling, Stopping, TokenScore
from worker.sequence import BoundaryPosition, Sequence, SequenceSpec, pack_tokens

SIZE = 4
STORED, EVICTED = EventKind.STORED, EventKind.EVICTED


@pytest.fixture(params=[RadixCache, BlockHashCache])
def cache(request: pytest.FixtureRequest) -> PrefixCache:
    made: PrefixCache = request.param(PagePool(16, SIZE))
    return made


def sequence(number: int, length: int, *places: int) -> Sequence:
    boundaries = tuple(BoundaryPosition(bytes([place]), place) for place in places)
    prompt = pack_tokens(list(range(length)))
    spec = SequenceSpec(
        number, CacheScope(), prompt, Sampling(), Stopping(1), boundaries=boundaries
    )
    return Sequence(spec)


def told(cache: PrefixCache) -> list[tuple[EventKind, int]]:
    return [(event.kind, event.num_tokens) for event in cache.tags.take_events()]


def computed(allotment: Allotment, one: Sequence, end: int) -> None:
    """A step computes the sequence's tokens up to there."""
    allotment.commit(one, end)
    one.computed = end
    allotment.settle(one)


def test_a_boundary_is_told_with_the_last_whole_page_in_front_of_it(cache: PrefixCache) -> None:
    allotment, one = Allotment(cache), sequence(1, 18, 3, 9, 12, 17)
    assert allotment.admit(one, spare=0) is not None
    seen = []
    for end in (5, 7, 8, 11, 14, 18):
        computed(allotment, one, end)
        seen.append([place for _, place in told(cache)])
    assert seen == [[], [], [9], [], [12], [17]]


def test_a_boundary_stays_while_the_pages_behind_it_go(cache: PrefixCache) -> None:
    allotment, one = Allotment(cache), sequence(1, 18, 9)
    assert allotment.admit(one, spare=0) is not None
    computed(allotment, one, 18)
    cache.step_done()
    allotment.give_back(one)
    assert cache.pool.allocate(cache.pool.num_available - 2) is not None
    assert told(cache) == [(STORED, 9)]
    assert cache.pool.allocate(1) is not None
    assert told(cache) == [(EVICTED, 9)]


def test_a_boundary_is_tied_to_the_page_that_stays_of_two(cache: PrefixCache) -> None:
    allotment, one, other = Allotment(cache), sequence(1, 13), sequence(2, 13, 12)
    for each in (one, other):
        assert allotment.admit(each, spare=0) is not None
    allotment.commit(one, 13)
    allotment.commit(other, 13)
    assert other.held is not None
    assert other.held.duplicates
    for each in (one, other):
        computed(allotment, each, 13)
    cache.step_done()
    for each in (one, other):
        allotment.give_back(each)
    cache.check()
    assert cache.pool.allocate(cache.pool.num_pages) is not None
    assert told(cache) == [(STORED, 12), (EVICTED, 12)]
    assert cache.tags.snapshot()[0] == []


def test_no_page_that_is_handed_out_has_scores_whatever_it_is_for() -> None:
    pool = PagePool(3, SIZE)
    allotment = Allotment(RadixCache(pool))
    one, other = sequence(1, 12), sequence(2, 3)
    assert allotment.admit(one, spare=0) is not None
    computed(allotment, one, 12)
    allotment.score(one, 0, [TokenScore(-1.0, 1)] * 11)
    allotment.give_back(one)
    assert len(allotment._scores) == 3
    for left, num_tokens in ((2, 3), (1, 5), (0, 9)):
        while other.num_tokens < num_tokens:
            other.append(7)
        other.computed = other.num_tokens - 1
        got = allotment.grow(other) if other.held else allotment.admit(other, spare=0)
        assert got
        assert len(allotment._scores) == left
