"""Public and private regions, page by page; the numbers of docs/prefix-cache.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.worker.cache.test_worked_example import ANNA, BERT, STEM, start
from worker.cache.block_hash import BlockHashCache
from worker.cache.eviction import IDLE_TURNOVERS
from worker.cache.interface import Match, PrefixCache
from worker.cache.off import NoCache
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import Account, CacheScope, Root, digest_of
from worker.sequence import pack_tokens

A = CacheScope(b"a", account=Account(b"a"), public_tokens=10)
B = CacheScope(b"b", account=Account(b"b"), public_tokens=10)
CARL = [*STEM, 50, 51]
KINDS = pytest.mark.parametrize("kind", [RadixCache, BlockHashCache])
Kind = type[RadixCache] | type[BlockHashCache]


def serve(cache: PrefixCache, scope: CacheScope, tokens: list[int]) -> tuple[Match, list[int]]:
    """Takes a prompt through the cache; returns its match and its pages."""
    match, held = start(cache, tokens, scope)
    pages = list(held.pages)
    cache.finish(held, pack_tokens(tokens), len(tokens))
    cache.check()
    return match, pages


@KINDS
def test_two_namespaces_share_the_public_pages_and_nothing_else(kind: Kind) -> None:
    cache = kind(PagePool(8, 4))
    _, anna = serve(cache, A, ANNA)
    assert anna[:3] == [0, 1, 2]
    # Tokens 18 and 19 are public too, but page 2 straddles: it is Anna's, and is not even copied.
    assert cache.match(B, pack_tokens(BERT)) == Match([0, 1])
    assert cache.match(B, pack_tokens(ANNA)) == Match([0, 1])
    assert cache.match(A, pack_tokens(ANNA)).pages == [0, 1, 2]
    assert cache.pool.pages_by_account()[b""] == 2


def test_behind_the_public_pages_radix_copies_from_the_own_namespace_only() -> None:
    cache = RadixCache(PagePool(12, 4))
    serve(cache, A, ANNA)
    _, bert = serve(cache, B, BERT)
    assert bert == [0, 1, 4, 5]
    assert cache.match(A, pack_tokens(CARL)) == Match([0, 1], tail_page=2, tail_len=2)
    assert cache.match(B, pack_tokens(CARL)) == Match([0, 1], tail_page=4, tail_len=2)


def test_radix_copies_from_a_public_page_where_the_public_tokens_part() -> None:
    cache = RadixCache(PagePool(12, 4))
    serve(cache, A, ANNA)
    other = [*STEM[:6], 77, 78, 79, 80, 81]
    assert cache.match(B, pack_tokens(other)) == Match([0], tail_page=1, tail_len=2)
    assert cache.match(CacheScope.of(b"b"), pack_tokens(other)) == Match()


@KINDS
def test_declared_public_and_not_are_two_trees(kind: Kind) -> None:
    """Who does not say that tokens are public shares them with his namespace alone, and back."""
    cache = kind(PagePool(16, 4))
    serve(cache, A, ANNA)
    alone = replace(A, public_tokens=0)
    assert cache.match(alone, pack_tokens(ANNA)) == Match()
    serve(cache, alone, ANNA)
    assert cache.match(B, pack_tokens(ANNA)) == Match([0, 1])
    assert cache.match(replace(B, public_tokens=0), pack_tokens(ANNA)) == Match()


@KINDS
def test_less_public_never_reads_further_into_the_public_tree(kind: Kind) -> None:
    cache = kind(PagePool(16, 4))
    serve(cache, replace(A, public_tokens=13), ANNA)
    assert cache.match(replace(B, public_tokens=12), pack_tokens(ANNA)) == Match([0, 1, 2])
    assert cache.match(replace(B, public_tokens=11), pack_tokens(ANNA)) == Match([0, 1])
    assert cache.match(replace(B, public_tokens=3), pack_tokens(ANNA)) == Match()


@KINDS
def test_either_region_may_go_without_the_other(kind: Kind) -> None:
    cache = kind(PagePool(16, 4, eviction="lru"))
    pool = cache.pool
    serve(cache, A, ANNA)
    # Somebody else uses the private pages' account... and the public pages go first.
    held = cache.hold(A, [0, 1, 2])
    for page in (1, 0):
        pool.release([page])
    taken = pool.allocate(pool.num_available)
    assert taken is not None
    cache.check()
    assert not pool.is_indexed(0)
    assert pool.is_indexed(2)
    assert cache.match(A, pack_tokens(ANNA)) == Match()
    pool.release(taken)
    held.pages = [2]
    held.release(pool)
    # Computed again, the public pages lead to the private one that had stayed.
    _, again = start(cache, ANNA, A)
    again.settle(pool)
    assert again.pages[2] == 2
    assert cache.match(A, pack_tokens(ANNA)).pages == again.pages[:3]


@KINDS
def test_nothing_private_is_found_behind_a_gap_in_the_public_pages(kind: Kind) -> None:
    cache = kind(PagePool(8, 4))
    serve(cache, A, ANNA)
    cache.pool.share([0, 2])
    cache.pool.allocate(cache.pool.num_available)
    assert [cache.pool.is_indexed(page) for page in (0, 1, 2)] == [True, False, True]
    assert cache.match(A, pack_tokens(ANNA)) == Match([0])
    assert cache.match_pages(A, pack_tokens(ANNA)) == (1, 0)


@KINDS
def test_a_page_that_is_used_again_stands_for_its_new_stem(kind: Kind) -> None:
    """Page 1 lies behind one stem, whose page 0 then becomes another's: it must not be found."""
    cache = kind(PagePool(8, 4))
    pool = cache.pool
    scope = CacheScope(b"a", account=Account(b"a"), public_tokens=4)
    serve(cache, scope, [1, 2, 3, 4, 9, 9, 9, 9])
    pool.share([1])
    taken = pool.allocate(pool.num_available)
    assert taken is not None
    pool.release([0])
    pool.release(page for page in taken if page != 0)
    _, held = start(cache, [5, 6, 7, 8, 9, 9, 9, 9], scope)
    assert held.pages[0] == 0
    assert held.duplicates == []
    cache.check()


@KINDS
def test_adapters_and_namespaces_of_one_name_are_strangers(kind: Kind) -> None:
    cache = kind(PagePool(32, 4))
    scopes = [
        CacheScope(),
        CacheScope(b"x"),
        CacheScope(adapter="x"),
        CacheScope(b"x", adapter="x"),
        CacheScope(b"public", public_tokens=8),
        CacheScope(b"private", adapter="x", public_tokens=8),
    ]
    for scope in scopes:
        match, _ = serve(cache, scope, ANNA)
        assert match == Match()


def test_roots_differ_by_every_field_and_so_do_their_salts() -> None:
    digest = digest_of(b"abcd")
    roots = [
        Root(),
        Root(public=True),
        Root(b"ab"),
        Root(b"a", adapter="b"),
        Root(adapter="ab"),
        Root(b"ab", public=True),
        Root(behind=digest),
        Root(digest),
        Root(b"a", behind=digest),
        Root(b"a" + digest),
    ]
    assert len(set(roots)) == len(roots)
    assert len({root.salt for root in roots}) == len(roots)


@KINDS
def test_a_waiting_request_hears_of_each_run_once(kind: Kind) -> None:
    cache = kind(PagePool(16, 4))
    heard: list[tuple[int | Root, bytes]] = []
    cache.on_grown = lambda before, tokens: heard.append((before, tokens))
    own = Root(b"a", behind=digest_of(pack_tokens(STEM[:8])))
    assert cache.match_pages(A, pack_tokens(ANNA)) == (0, A.public_root)
    serve(cache, A, ANNA)
    assert heard == [
        (A.public_root, pack_tokens(STEM[:4])),
        (own, pack_tokens([18, 19, 30, 31])),
    ]
    assert cache.match_pages(A, pack_tokens(ANNA)) == (3, 2)
    assert cache.match_pages(B, pack_tokens(ANNA)) == (2, Root(b"b", behind=own.behind))
    heard.clear()
    longer = [*ANNA, 33, 34, 35, 36, 37, 38, 39]
    serve(cache, A, longer)
    assert heard == [(2, pack_tokens([32, 33, 34, 35]))]
    serve(cache, A, longer)
    assert len(heard) == 1


def test_off_finds_nothing_in_any_region() -> None:
    cache = NoCache(PagePool(16, 4))
    serve(cache, A, ANNA)
    assert cache.match(A, pack_tokens(ANNA)) == Match()
    assert cache.match_pages(A, pack_tokens(ANNA)) == (0, A.public_root)
    assert cache.match_pages(CacheScope(), pack_tokens(ANNA)) == (0, Root())


@KINDS
def test_a_path_stays_on_the_account_that_began_it(kind: Kind) -> None:
    """Two accounts in one namespace: else the older one's page could go before what follows it."""
    cache = kind(PagePool(16, 4))
    first = CacheScope(b"team", account=Account(b"first"))
    second = CacheScope(b"team", account=Account(b"second"))
    serve(cache, first, ANNA[:8])
    serve(cache, second, [*ANNA, 33, 34, 35])
    assert cache.pool.pages_by_account()[b"first"] == 4
    serve(cache, second, [1, 2, 3, 4])
    assert cache.pool.pages_by_account() == {b"first": 4, b"second": 1}


def all_idle(kind: Kind) -> PrefixCache:
    """Two public pages and two of a's, 0 to 3, then six of b's; nobody has asked since."""
    cache = kind(PagePool(20, 4))
    serve(cache, A, list(range(16)))
    serve(cache, CacheScope.of(b"b"), list(range(100, 124)))
    pass_by(cache.pool, IDLE_TURNOVERS * 20)
    return cache


def pass_by(pool: PagePool, count: int) -> None:
    """Hands out pages that are in no index."""
    for _ in range(count):
        pool.release(pool.allocate(1) or [])


def lost(cache: PrefixCache, count: int) -> dict[bytes, int]:
    """Who gives when so many pages are needed beyond the free ones."""
    cache.pool.allocate(cache.pool.num_free + count)
    return cache.pool.record.by_account


@KINDS
def test_who_asks_for_nothing_that_is_there_is_active_all_the_same(kind: Kind) -> None:
    assert lost(all_idle(kind), 5) == {b"": 2, b"a": 2, b"b": 1}
    cache = all_idle(kind)
    cache.hold(replace(A, public_tokens=0), [])
    assert lost(cache, 8) == {b"": 2, b"b": 6}
    cache = all_idle(kind)
    cache.hold(A, [])
    assert lost(cache, 6) == {b"b": 6}


@KINDS
def test_who_ends_is_active_though_nothing_of_his_comes_to_rest(kind: Kind) -> None:
    cache = all_idle(kind)
    cache.hold(A, [0, 1])
    held = cache.hold(A, [0, 1])
    pass_by(cache.pool, IDLE_TURNOVERS * 20)
    cache.finish(held, pack_tokens(list(range(16))), 8)
    assert lost(cache, 6) == {b"b": 6}
