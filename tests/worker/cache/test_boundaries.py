"""What is told of boundaries: each one stored and evicted once, in numbers without gaps."""

from __future__ import annotations

import pytest

from tests.worker.cache.test_worked_example import ANNA, start
from worker.cache.block_hash import BlockHashCache
from worker.cache.boundaries import MAX_TAGS_PER_PAGE, BoundaryEvent, BoundaryTags, EventKind
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import Account, CacheScope
from worker.sequence import pack_tokens


def kinds(events: list[BoundaryEvent]) -> list[tuple[str, bytes]]:
    return [(event.kind.value, event.digest) for event in events]


def test_a_boundary_is_told_once_and_taken_once() -> None:
    tags = BoundaryTags()
    for _ in range(2):
        tags.store(3, b"d", 16)
    assert tags.take_events() == [BoundaryEvent(1, EventKind.STORED, b"d", 16)]
    assert tags.take_events() == []
    tags.evict(4)
    tags.evict(3)
    tags.evict(3)
    assert tags.take_events() == [BoundaryEvent(2, EventKind.EVICTED, b"d", 16)]
    assert tags.snapshot() == ([], 2)


def test_a_boundary_that_moves_stays_stored_and_leaves_with_its_new_page() -> None:
    tags = BoundaryTags()
    tags.store(3, b"d", 16)
    tags.store(5, b"d", 16)
    tags.evict(3)
    assert kinds(tags.take_events()) == [("stored", b"d"), ("stored", b"d")]
    assert [event.digest for event in tags.snapshot()[0]] == [b"d"]
    tags.evict(5)
    assert kinds(tags.take_events()) == [("evicted", b"d")]


def test_events_told_one_after_the_other_make_what_a_snapshot_tells() -> None:
    tags = BoundaryTags()
    tags.store(1, b"gone", 4)
    tags.clear()
    tags.store(1, b"a", 4)
    tags.store(1, b"b", 5)
    tags.store(2, b"c", 8)
    tags.evict(2)
    events = tags.take_events()
    assert [event.sequence for event in events] == list(range(1, 7))
    told: dict[bytes, int] = {}
    for event in events:
        if event.kind is EventKind.STORED:
            told[event.digest] = event.num_tokens
        elif event.kind is EventKind.EVICTED:
            del told[event.digest]
        else:
            told.clear()
    stored, number = tags.snapshot()
    assert {one.digest: one.num_tokens for one in stored} == told == {b"a": 4, b"b": 5}
    assert number == events[-1].sequence


def test_a_page_carries_so_many_boundaries_and_no_more() -> None:
    tags = BoundaryTags()
    for number in range(MAX_TAGS_PER_PAGE + 5):
        tags.store(0, str(number).encode(), 4)
    assert len(tags.snapshot()[0]) == len(tags.take_events()) == MAX_TAGS_PER_PAGE


@pytest.mark.parametrize("presser", [b"a", b"b"])
@pytest.mark.parametrize("kind", [RadixCache, BlockHashCache])
def test_an_eviction_says_whether_another_account_needed_the_room(
    kind: type[RadixCache] | type[BlockHashCache], presser: bytes
) -> None:
    cache = kind(PagePool(8, 4))
    scope = CacheScope.of(b"a")
    _, held = start(cache, ANNA, scope)
    cache.tags.store(2, b"d", 12)
    cache.finish(held, pack_tokens(ANNA), len(ANNA))
    cache.tags.take_events()
    assert cache.pool.allocate(cache.pool.num_available, Account(presser)) is not None
    told = cache.tags.take_events()
    assert [(one.digest, one.by_another) for one in told] == [(b"d", presser == b"b")]


@pytest.mark.parametrize("kind", [RadixCache, BlockHashCache])
def test_a_boundary_leaves_with_its_page_and_with_a_reset(
    kind: type[RadixCache] | type[BlockHashCache],
) -> None:
    cache = kind(PagePool(8, 4))
    _, held = start(cache, ANNA)
    for page in (0, 2):
        cache.tags.store(page, bytes([page]), 4 * page + 4)
    cache.finish(held, pack_tokens(ANNA), len(ANNA))
    assert cache.pool.allocate(cache.pool.num_available - 2) is not None
    assert kinds(cache.tags.take_events())[2:] == [("evicted", b"\x02")]
    cache.reset()
    assert kinds(cache.tags.take_events()) == [("cleared", b"")]
    assert cache.tags.snapshot()[0] == []
