from __future__ import annotations

from worker.cache.pages import PagePool
from worker.cache.record import MAX_PAIRS, NUM_BUCKETS, OTHERS, EvictionRecord, Histogram
from worker.cache.scope import Account

A, B = Account(b"a"), Account(b"b")


def cached(pool: PagePool, account: Account, count: int) -> list[int]:
    """Takes pages, puts them into the index and lets go of them."""
    pages = pool.allocate(count, account)
    assert pages is not None
    pool.index(pages, account)
    pool.release(reversed(pages))
    return pages


def test_evictions_are_counted_by_who_lost_and_who_pressed() -> None:
    pool = PagePool(8, 4)
    cached(pool, A, 6)
    cached(pool, B, 5)
    assert pool.record.by_pressure == {(b"a", b"b"): 3}
    cached(pool, A, 2)
    assert pool.record.by_account == {b"a": 3, b"b": 2}
    assert pool.record.by_pressure[(b"b", b"a")] == 2
    assert pool.evicted_total == 5


def test_above_its_cap_an_account_presses_itself() -> None:
    pool = PagePool(8, 4)
    capped = Account(b"c", cap=0.25)
    pages = cached(pool, capped, 4)
    assert pool.num_cached == 2
    assert [pool.is_indexed(page) for page in pages] == [True, True, False, False]
    assert pool.record.by_pressure == {(b"c", b"c"): 2}


def test_the_pools_own_limit_is_pressed_by_who_came_to_rest() -> None:
    pool = PagePool(8, 4, max_cached_pages=3)
    cached(pool, A, 3)
    cached(pool, B, 1)
    assert pool.record.by_pressure == {(b"a", b"b"): 1}


def test_lifetime_and_idleness_are_counted_in_pages_handed_out() -> None:
    pool = PagePool(4, 4)
    [page] = cached(pool, A, 1)  # 1 page handed out so far
    pool.share([page])
    others = pool.allocate(3, B)  # 4
    assert others is not None
    pool.release([page])
    pool.release(others)
    assert pool.allocate(4, B) is not None
    # It lived for 3 pages and lay idle for none.
    assert (pool.record.lifetime.total, pool.record.idle.total) == (3, 0)
    assert pool.record.lifetime.counts[2] == 1
    assert pool.record.idle.counts[0] == 1


def test_a_histogram_has_an_end() -> None:
    histogram = Histogram()
    for value in (0, 1, 2, 3, 4, 2**100):
        histogram.note(value)
    assert histogram.counts[:4] == [1, 1, 2, 1]
    assert histogram.counts[NUM_BUCKETS - 1] == 1
    assert len(histogram.counts) == NUM_BUCKETS


def test_a_record_tells_so_many_pairs_apart_and_no_more() -> None:
    record = EvictionRecord()
    for number in range(MAX_PAIRS + 5):
        record.note(str(number).encode(), b"x")
    assert len(record.by_pressure) == MAX_PAIRS + 1
    assert record.by_pressure[OTHERS] == 5
