"""Both caches under random life: every read must find its own prefix, every page its one state.

Several namespaces, one of them with two accounts; public regions, guarantees, caps and pins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.effort import OPERATIONS, STEPS
from tests.worker.cache.oracle import Oracle, pack
from tests.worker.cache.watchdog import Watchdog
from worker.cache.block_hash import BlockHashCache
from worker.cache.interface import PrefixCache
from worker.cache.off import NoCache
from worker.cache.pages import PagePool
from worker.cache.pins import Pins
from worker.cache.radix import RadixCache
from worker.cache.scope import PUBLIC, Account, CacheScope

# Few symbols and a tiny pool, so that prefixes collide, pages run short and runs split.
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=14)
A = Account(b"a", share=0.25)
B = Account(b"b", weight=2, share=0.1)
C = Account(b"c", cap=0.25)
HOMES = [
    CacheScope(account=PUBLIC),
    CacheScope(b"a", account=A),
    CacheScope(b"shared", account=B),
    CacheScope(b"shared", account=C),
    CacheScope(b"c", account=C),
    # As a namespace is named, and in front of everybody: neither may make it the same.
    CacheScope(b"", adapter="a", account=PUBLIC),
]


@st.composite
def prompts(draw: st.DrawFn) -> tuple[CacheScope, list[int]]:
    """A prompt and where it belongs; every other one has public tokens."""
    tokens = draw(TOKENS)
    num_public = draw(st.sampled_from([0, 0, len(tokens) // 2, len(tokens)]))
    return replace(draw(st.sampled_from(HOMES)), public_tokens=num_public), tokens


class CacheLife(RuleBasedStateMachine):
    page_size: ClassVar[int] = 3
    num_pages: ClassVar[int] = 12
    fair: ClassVar[bool] = True
    keys_differ: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(self.num_pages, self.page_size, keep_freed=True)
        cache = self.make(self.pool)
        self.oracle = Oracle(cache, keys_differ=self.keys_differ)
        self.now = 0.0
        self.pins = Pins(self.pool, 0.4, lambda: self.now)
        self.pinned: dict[bytes, tuple[CacheScope, list[int], list[int]]] = {}
        self.oracle.pinned = lambda: self.pins._times_pinned
        self.watchdog = Watchdog(self.oracle, [PUBLIC, A, B, C], fair=self.fair)

    def make(self, pool: PagePool) -> PrefixCache:
        raise NotImplementedError

    @rule(prompt=prompts(), chunk=st.integers(1, 14))
    def admit(self, prompt: tuple[CacheScope, list[int]], chunk: int) -> None:
        sequence = self.oracle.admit(*prompt)
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
        child = self.oracle.admit(sequence.scope, sequence.tokens + tokens)
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

    @rule(prompt=prompts())
    def wait(self, prompt: tuple[CacheScope, list[int]]) -> None:
        self.oracle.watch(*prompt)

    @rule(prompt=prompts(), key=st.sampled_from([b"k", b"l"]), lease=st.integers(-1, 3))
    def pin(self, prompt: tuple[CacheScope, list[int]], key: bytes, lease: int) -> None:
        self.oracle.run()
        scope, tokens = prompt
        pages = self.oracle.cache.match(scope, pack(tokens)).pages
        if self.pins.pin(key, pages, self.now + lease):
            assert lease > 0
            self.pinned[key] = (scope, tokens, pages)
        self.oracle._poison_freed()

    @rule(passed=st.integers(1, 2))
    def time_passes(self, passed: int) -> None:
        self.now += passed
        self.pins.expire()
        self.oracle._poison_freed()

    @precondition(lambda self: len(self.pins) > 0)
    @rule()
    def give_up_a_pin(self) -> None:
        assert self.pins.release_next()
        self.oracle._poison_freed()

    @invariant()
    def what_is_pinned_is_found(self) -> None:
        assert self.pins.num_pages <= 0.4 * self.num_pages
        self.pinned = {key: pin for key, pin in self.pinned.items() if key in self.pins._pins}
        for scope, tokens, pages in self.pinned.values() if self.keys_differ else ():
            assert self.oracle.cache.match(scope, pack(tokens)).pages[: len(pages)] == pages

    @invariant()
    def accounts_agree(self) -> None:
        self.watchdog.check()

    @rule()
    def reset(self) -> None:
        self.pins.clear()
        self.oracle.cache.reset()
        self.oracle._poison_freed()

    @invariant()
    def every_page_has_one_state(self) -> None:
        self.oracle.check()

    def teardown(self) -> None:
        self.oracle.run()
        for sequence in list(self.oracle.running):
            self.oracle.finish(sequence)
        self.pins.clear()
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

    keys_differ = False

    def make(self, pool: PagePool) -> PrefixCache:
        return BlockHashCache(pool, start_hash=SameKey)


class WeaklyCollidingBlockLife(CacheLife):
    """Keys collide now and then, between prefixes and between tenants; the later one is found."""

    keys_differ = False

    def make(self, pool: PagePool) -> PrefixCache:
        return BlockHashCache(pool, start_hash=OneOfThreeKeys)


class OffLife(CacheLife):
    def make(self, pool: PagePool) -> PrefixCache:
        return NoCache(pool)


class OneTokenPages(RadixLife):
    page_size = 1
    num_pages = 30


class LruRadixLife(CacheLife):
    fair = False

    def make(self, pool: PagePool) -> PrefixCache:
        self.pool = PagePool(self.num_pages, self.page_size, eviction="lru", keep_freed=True)
        return RadixCache(self.pool)


class WideRadixLife(RadixLife):
    """Room for several accounts beside one another."""

    page_size = 2
    num_pages = 40


class WideBlockLife(BlockLife):
    page_size = 2
    num_pages = 40


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
        LruRadixLife,
        WideRadixLife,
        WideBlockLife,
    ],
)
def test_any_life_reads_only_its_own_prefix(life: type[CacheLife]) -> None:
    machine = life.TestCase
    machine.settings = settings(
        max_examples=OPERATIONS // STEPS,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine("runTest").runTest()
