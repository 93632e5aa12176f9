"""Both caches under random life: every read must find its own prefix, every page its one state."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.worker.cache.oracle import Oracle
from worker.cache.block_hash import BlockHashCache
from worker.cache.interface import PrefixCache
from worker.cache.off import NoCache
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache

# Few symbols and a tiny pool, so that prefixes collide, pages run short and runs split.
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=14)
NAMESPACES = st.sampled_from([b"", b"a", b"b"])


class CacheLife(RuleBasedStateMachine):
    page_size: ClassVar[int] = 3
    num_pages: ClassVar[int] = 12

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(self.num_pages, self.page_size, keep_freed=True)
        self.oracle = Oracle(self.make(self.pool))

    def make(self, pool: PagePool) -> PrefixCache:
        raise NotImplementedError

    @rule(namespace=NAMESPACES, tokens=TOKENS, chunk=st.integers(1, 14))
    def admit(self, namespace: bytes, tokens: list[int], chunk: int) -> None:
        sequence = self.oracle.admit(namespace, tokens)
        if sequence is not None:
            self.oracle.plan(sequence, chunk)

    @rule(chunk=st.integers(1, 6))
    def step(self, chunk: int) -> None:
        for sequence in self.oracle.running:
            if not sequence.planned:
                self.oracle.plan(sequence, chunk)
        self.oracle.run()

    @rule()
    def step_only_what_is_planned(self) -> None:
        self.oracle.run()

    @rule()
    def step_fails(self) -> None:
        self.oracle.run(fail=True)

    @precondition(lambda self: self.oracle.running)
    @rule(data=st.data(), tokens=TOKENS)
    def extend(self, data: st.DataObject, tokens: list[int]) -> None:
        sequence = data.draw(st.sampled_from(self.oracle.running), "extend")
        if not sequence.planned:
            self.oracle.grow(sequence, tokens)

    @precondition(lambda self: self.oracle.running)
    @rule(data=st.data(), tokens=TOKENS)
    def fork(self, data: st.DataObject, tokens: list[int]) -> None:
        sequence = data.draw(st.sampled_from(self.oracle.running), "fork")
        child = self.oracle.admit(sequence.namespace, sequence.tokens + tokens)
        if child is not None:
            self.oracle.plan(child, 2)

    @precondition(lambda self: any(not one.planned for one in self.oracle.running))
    @rule(data=st.data())
    def finish_abort_or_preempt(self, data: st.DataObject) -> None:
        idle = [one for one in self.oracle.running if not one.planned]
        self.oracle.finish(data.draw(st.sampled_from(idle), "finish"))

    @precondition(lambda self: any(one.planned for one in self.oracle.running))
    @rule(data=st.data())
    def abort_in_the_step(self, data: st.DataObject) -> None:
        planned = [one for one in self.oracle.running if one.planned]
        self.oracle.abort_in_the_step(data.draw(st.sampled_from(planned), "abort"))

    @rule()
    def evict_by_filling_the_pool(self) -> None:
        pages = self.pool.allocate(self.pool.num_available)
        assert pages is not None
        self.oracle._poison_freed()
        self.pool.release(pages)
        self.oracle._poison_freed()

    @rule()
    def reset(self) -> None:
        self.oracle.cache.reset()
        self.oracle._poison_freed()

    @invariant()
    def every_page_has_one_state(self) -> None:
        self.oracle.check()

    def teardown(self) -> None:
        self.oracle.run()
        for sequence in list(self.oracle.running):
            self.oracle.finish(sequence)
        self.oracle.check()
        assert self.pool.num_used == 0


class RadixLife(CacheLife):
    def make(self, pool: PagePool) -> PrefixCache:
        return RadixCache(pool)


class BlockLife(CacheLife):
    def make(self, pool: PagePool) -> PrefixCache:
        return BlockHashCache(pool)


class OneOfThreeKeys:
    def __init__(self, data: bytes) -> None:
        self.total = sum(data)

    def update(self, data: bytes, /) -> None:
        self.total += sum(data)

    def digest(self) -> bytes:
        return bytes([self.total % 3])


class SameKey(OneOfThreeKeys):
    def digest(self) -> bytes:
        return b"same"


class CollidingBlockLife(CacheLife):
    """Every key is the same: outputs stay right, hits only drop."""

    def make(self, pool: PagePool) -> PrefixCache:
        return BlockHashCache(pool, start_hash=SameKey)


class WeaklyCollidingBlockLife(CacheLife):
    """Keys collide now and then, between prefixes and between tenants."""

    def make(self, pool: PagePool) -> PrefixCache:
        return BlockHashCache(pool, start_hash=OneOfThreeKeys)


class OffLife(CacheLife):
    def make(self, pool: PagePool) -> PrefixCache:
        return NoCache(pool)


class OneTokenPages(RadixLife):
    page_size = 1
    num_pages = 30


class CappedRadixLife(CacheLife):
    def make(self, pool: PagePool) -> PrefixCache:
        self.pool = PagePool(self.num_pages, self.page_size, max_cached_pages=3, keep_freed=True)
        return RadixCache(self.pool)


@pytest.mark.parametrize(
    "life",
    [
        RadixLife,
        BlockLife,
        CollidingBlockLife,
        WeaklyCollidingBlockLife,
        OffLife,
        OneTokenPages,
        CappedRadixLife,
    ],
)
def test_any_life_reads_only_its_own_prefix(life: type[CacheLife]) -> None:
    machine = life.TestCase
    machine.settings = settings(
        max_examples=150,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine("runTest").runTest()
