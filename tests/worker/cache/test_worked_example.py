"""The page numbers of docs/prefix-cache.md. Change both or neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.cache.block_hash import BlockHashCache
from worker.cache.eviction import Eviction
from worker.cache.interface import Match, PrefixCache, SequencePages
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import Account, CacheScope
from worker.sequence import pack_tokens

STEM = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
ANNA = [*STEM, 30, 31, 32]
BERT = [*STEM, 40, 41, 42]


NOBODY = CacheScope()


def start(
    cache: PrefixCache, tokens: list[int], scope: CacheScope = NOBODY
) -> tuple[Match, SequencePages]:
    """Match, hold, allocate and commit a whole prompt, as one step of the scheduler does."""
    match = cache.match(scope, pack_tokens(tokens)[:-4])
    held = cache.hold(scope, match.pages)
    wanted = -(-len(tokens) // 4) - len(match.pages)
    fresh = cache.pool.allocate(wanted, scope.account)
    assert fresh is not None
    held.pages += fresh
    cache.commit(held, pack_tokens(tokens), len(tokens))
    cache.step_done()
    return match, held


def test_radix_gives_the_second_prompt_two_pages_and_two_tokens_of_a_third() -> None:
    cache = RadixCache(PagePool(8, 4))
    _, anna = start(cache, ANNA)
    assert anna.pages == [0, 1, 2, 3]
    cache.finish(anna, pack_tokens(ANNA), 13)
    match, bert = start(cache, BERT)
    assert match == Match([0, 1], tail_page=2, tail_len=2)
    assert bert.pages == [0, 1, 4, 5]
    cache.finish(bert, pack_tokens(BERT), 13)
    assert (cache.pool.num_free, cache.pool.num_cached) == (2, 6)


def test_block_gives_the_second_prompt_two_pages() -> None:
    cache = BlockHashCache(PagePool(8, 4))
    _, anna = start(cache, ANNA)
    cache.finish(anna, pack_tokens(ANNA), 13)
    assert (cache.pool.num_free, cache.pool.num_cached) == (5, 3)
    match, bert = start(cache, BERT)
    assert match == Match([0, 1])
    assert bert.pages == [0, 1, 4, 5]


def test_eviction_takes_the_oldest_tails_first_and_the_stem_last() -> None:
    cache = RadixCache(PagePool(8, 4))
    for tokens in (ANNA, BERT):
        _, held = start(cache, tokens)
        cache.finish(held, pack_tokens(tokens), 13)
    pool = cache.pool
    gone = [page for taken in (pool.allocate(1) for _ in range(8)) for page in taken or []]
    assert gone == [6, 7, 3, 2, 5, 4, 1, 0]


@pytest.mark.parametrize(("kind", "pages", "tail"), [(RadixCache, 93, 12), (BlockHashCache, 93, 0)])
def test_a_shared_prefix_of_1500_tokens(
    kind: type[RadixCache] | type[BlockHashCache], pages: int, tail: int
) -> None:
    cache = kind(PagePool(200, 16))
    shared = list(range(1500))
    first = pack_tokens([*shared, *range(5000, 5032)])
    held = cache.hold(CacheScope(), [])
    held.pages += cache.pool.allocate(96) or []
    cache.commit(held, first, 1532)
    cache.step_done()
    cache.finish(held, first, 1532)
    match = cache.match(CacheScope(), pack_tokens([*shared, *range(6000, 6031)]))
    assert (len(match.pages), match.tail_len) == (pages, tail)
    assert len(match.pages) * 16 + match.tail_len == 1488 + tail


@pytest.mark.parametrize(
    ("eviction", "gone", "left"), [("lru", [1, 0, 7], (0, 5)), ("fair", [7, 6, 5], (2, 3))]
)
def test_who_floods_gives_its_own_pages(
    eviction: Eviction, gone: list[int], left: tuple[int, int]
) -> None:
    cache = RadixCache(PagePool(8, 4, eviction=eviction))
    for name, tokens in ((b"ben", list(range(100, 108))), (b"ada", list(range(24)))):
        _, held = start(cache, tokens, CacheScope.of(name))
        cache.finish(held, pack_tokens(tokens), len(tokens))
    assert cache.pool.pages_by_account() == {b"ben": 2, b"ada": 6}
    assert cache.pool.allocate(3, Account(b"ada")) == gone
    held_by = cache.pool.pages_by_account()
    assert (held_by.get(b"ben", 0), held_by[b"ada"]) == left


def test_the_document_says_these_numbers() -> None:
    text = (Path(__file__).parents[3] / "docs" / "prefix-cache.md").read_text()
    text = " ".join(text.split())
    for line in (
        "Anna takes pages 0, 1, 2, 3",
        "shares pages 0 and 1, copies page 2 into page 4",
        "2 free, 6 cached",
        "6, 7, 3, 2, 5, 4, 1, 0",
        "93 x 16 = 1488",
        "1488 + 12 = 1500",
        "public root ── [10..17] pages 0 1",
        "[18 19 30 31] page 2 ── stub [32] page 3 root of b",
        "[18 19 40 41] page 4 ── stub [42] page 5",
        "Bert shares pages 0 and 1",
        "takes pages 4 and 5",
        "| `lru` | 1, 0, 7 | 0 | 5 |",
        "| `fair` | 7, 6, 5 | 2 | 3 |",
    ):
        assert line in text, line
