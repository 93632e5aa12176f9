"""Who is admitted next: by what is left to compute, within bounds for everybody."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.test_scheduler import CACHES, Driver
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import Account, CacheScope
from worker.order.cache_aware import AGE, MAX_IDLE_LANES, RANK_TOKENS, CacheAware
from worker.request import Sampling, Stopping
from worker.sequence import Sequence, SequenceSpec, pack_tokens

SIZE = 4


@dataclass
class Queue:
    """An order over an empty cache; sequences by number. now: tokens computed."""

    order: CacheAware
    now: int = 0
    made: int = 0

    @classmethod
    def make(cls, short_tokens: int = 0, slack_tokens: int = 1 << 40) -> Queue:
        cache = RadixCache(PagePool(256, SIZE))
        return cls(CacheAware(cache, short_tokens, slack_tokens))

    def add(
        self, length: int, account: bytes = b"", weight: float = 1.0, rank: int = 0
    ) -> Sequence:
        """A sequence that shares nothing with any other."""
        self.made += 1
        scope = CacheScope(account, account=Account(account, weight))
        prompt = pack_tokens([self.made + 1000] * length)
        spec = SequenceSpec(self.made, scope, prompt, Sampling(), Stopping(1), rank=rank)
        sequence = Sequence(spec)
        self.order.add(sequence, self.now)
        return sequence

    def take(self) -> Sequence:
        """The next one is admitted and computed at once."""
        self.order.begin(self.now)
        head = self.order.head()
        assert head is not None
        self.order.remove(head)
        self.order.charge(head, head.num_tokens)
        self.now += head.num_tokens
        return head


def test_least_left_goes_first_and_equals_by_arrival() -> None:
    queue = Queue.make()
    added = [queue.add(length) for length in (40, 8, 20, 8)]
    assert [queue.take() for _ in added] == [added[1], added[3], added[2], added[0]]
    assert len(queue.order) == 0
    assert queue.order.head() is None


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 400), st.integers(0, 2)), min_size=2, max_size=60
    )
)
def test_nobody_is_passed_by_what_comes_beyond_its_bound(
    events: list[tuple[bool, int, int]],
) -> None:
    queue = Queue.make(short_tokens=50)
    waiting: list[Sequence] = []
    for is_arrival, length, rank in [*events, *[(False, 1, 0)] * len(events)]:
        if is_arrival:
            waiting.append(queue.add(length, rank=rank))
        elif waiting:
            taken = queue.take()
            waiting.remove(taken)
            for passed in waiting:
                assert passed.arrived is not None
                assert taken.arrived is not None
                ranks = max(taken.spec.rank - passed.spec.rank, 0)
                bound = passed.arrived + (passed.num_tokens + RANK_TOKENS * ranks) / AGE
                assert taken.arrived <= bound
    assert not waiting


def test_a_stream_of_short_ones_does_not_starve_a_long_one() -> None:
    queue = Queue.make()
    long = queue.add(200)
    for number in range(math.ceil(200 / AGE / 10) + 2):
        queue.add(10)
        if queue.take() is long:
            assert number > 0
            return
    raise AssertionError("the long one was never admitted")


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_a_flood_leaves_others_their_share_by_weight(weight: float) -> None:
    queue = Queue.make(slack_tokens=40)
    for _ in range(200):
        queue.add(10, b"flood")
    for _ in range(60):
        queue.add(20, b"modest", weight)
    served = {b"flood": 0, b"modest": 0}
    for _ in range(60):
        taken = queue.take()
        served[taken.spec.scope.account.name] += taken.num_tokens
    assert served[b"modest"] / weight == pytest.approx(served[b"flood"], abs=60)


def test_an_account_that_waited_for_nothing_has_saved_no_turns() -> None:
    queue = Queue.make(slack_tokens=0)
    for _ in range(40):
        queue.add(10, b"busy")
    for _ in range(20):
        queue.take()
    for _ in range(10):
        queue.add(10, b"late")
    names = [queue.take().spec.scope.account.name for _ in range(20)]
    assert names[:10].count(b"late") <= 6


def test_an_account_that_comes_back_has_saved_no_turns_either() -> None:
    queue = Queue.make(slack_tokens=0)
    queue.add(10, b"back")
    queue.take()
    for _ in range(40):
        queue.add(10, b"busy")
    for _ in range(20):
        queue.take()
    for _ in range(10):
        queue.add(10, b"back")
    names = [queue.take().spec.scope.account.name for _ in range(20)]
    assert names[:10].count(b"back") <= 6


def test_who_was_preempted_stands_where_it_stood() -> None:
    queue = Queue.make()
    first = queue.add(10)
    queue.now += 1000
    second = queue.add(10)
    assert queue.take() is first
    queue.now += 1000
    queue.order.add(first, queue.now)
    assert [queue.take(), queue.take()] == [first, second]


def test_accounts_that_wait_for_nothing_are_forgotten_some_time() -> None:
    queue = Queue.make()
    waiting = queue.add(4000, b"waits")
    for number in range(4 * MAX_IDLE_LANES):
        queue.add(1, str(number).encode())
        assert queue.take() is not waiting
        assert len(queue.order._lanes) <= MAX_IDLE_LANES + 1
    assert queue.take() is waiting


def test_what_has_left_a_heap_does_not_stay_in_it() -> None:
    queue = Queue.make(short_tokens=10)
    long, short = queue.add(11), queue.add(10)
    for _ in range(1000):
        queue.order.begin(queue.now)
        assert queue.order.head() is short
        queue.order.remove(short)
        queue.order.head()
        queue.order.add(short, queue.now)
    lane = queue.order._lanes[b""]
    assert max(len(lane.short), len(lane.long)) <= 4 * 2 + 65
    assert long in queue.order


def test_what_stands_deep_in_a_heap_leaves_it_too() -> None:
    queue = Queue.make()
    head = queue.add(5)
    for _ in range(1000):
        queue.order.remove(queue.add(9))
    assert queue.order.head() is head
    assert len(queue.order._lanes[b""].long) <= 4 * 2 + 65


def test_ranks_count_against_what_is_left() -> None:
    queue = Queue.make()
    low, high = queue.add(8), queue.add(400, rank=1)
    assert [queue.take(), queue.take()] == [high, low]


def test_short_head_passes_a_long_one_only_when_asked() -> None:
    queue = Queue.make(short_tokens=10)
    long, short = queue.add(11), queue.add(10)
    queue.now += 10_000
    later = queue.add(10)
    queue.order.begin(queue.now)
    assert queue.order.short_head() is short
    queue.order.remove(short)
    assert queue.order.short_head() is later
    assert queue.order.head() is long
    assert queue.order.goes_before(long, later)


def chunked(kind: str, running: int = 8, size: int = SIZE) -> Driver:
    """A scheduler that computes a prompt of 33 tokens in five steps."""
    return Driver.make(kind, budget=8, pages=128, running=running, size=size)


PREFIX = list(range(100, 132))


@pytest.mark.parametrize("kind", ["radix", "block"])
def test_siblings_of_a_prefill_under_way_wait_for_it_and_compute_their_tails(kind: str) -> None:
    driver = chunked(kind)
    first = driver.add([*PREFIX, 1], max_tokens=1)
    driver.step()
    others = [driver.add([*PREFIX, 2 + number], max_tokens=1) for number in range(5)]
    stranger = driver.add([900] * 9, max_tokens=1)
    driver.run()
    assert all(driver.right(number, 1) for number in (first, stranger, *others))
    assert driver.runner.computed_tokens == len(PREFIX) + 1 + len(others) + 9


@pytest.mark.parametrize("kind", ["radix", "block"])
def test_a_short_sibling_does_not_compute_what_a_long_prefill_is_about_to(kind: str) -> None:
    driver = Driver.make(kind, budget=32, pages=128)
    first = driver.add(list(range(100)), max_tokens=1)
    driver.step()
    # It shares 38 tokens; 32 of them are there, and seven are few enough for the short ones.
    second = driver.add([*range(38), 900], max_tokens=1)
    driver.run()
    assert driver.right(first, 1)
    assert driver.right(second, 1)
    assert driver.runner.computed_tokens == 100 + (1 if kind == "radix" else 3)


def test_nobody_waits_for_what_a_prefill_cannot_bring() -> None:
    driver = Driver.make("off", budget=32, pages=128)
    driver.add([1] * 100, max_tokens=1)
    driver.step()
    short = driver.add([1] * 7, max_tokens=1)
    driver.step()
    assert driver.right(short, 1)


@pytest.mark.parametrize("kind", sorted(CACHES))
@pytest.mark.parametrize("what", ["abort", "fail"])
@pytest.mark.parametrize("size", [SIZE, 32])
def test_those_who_wait_for_a_prefill_that_ends_early_go_on_without_it(
    kind: str, what: str, size: int
) -> None:
    """The page of the larger size has not come when the prefill ends."""
    driver = chunked(kind, size=size)
    first = driver.add([*PREFIX, 1], max_tokens=1)
    driver.step()
    second = driver.add([*PREFIX, 2], max_tokens=1)
    driver.step()
    if what == "abort":
        driver.scheduler.abort(first)
    else:
        assert driver.scheduler.plan() is not None
        assert first in driver.scheduler.fail()
    driver.run()
    assert driver.right(second, 1)


def test_one_that_leaves_the_prefill_half_way_is_let_go_there() -> None:
    driver = chunked("radix", running=3)
    driver.add([*PREFIX, *range(200, 240)], max_tokens=1)
    driver.step()
    other = driver.add([*PREFIX[:12], 7, 7], max_tokens=1)
    for _ in range(7):
        driver.step()
    assert driver.right(other, 1)
    assert driver.scheduler.num_running == 1


def test_whoever_shares_what_is_cached_goes_before_a_shorter_stranger() -> None:
    driver = Driver.make("radix", running=1, budget=64, pages=128)
    driver.add([*PREFIX, 1], max_tokens=1)
    driver.run()
    stranger = driver.add([900] * 10, max_tokens=1)
    sibling = driver.add([*PREFIX, 2], max_tokens=1)
    driver.step()
    assert sibling in driver.ended
    assert stranger not in driver.ended


def test_an_order_follows_a_cache_that_grows_and_is_evicted_under_it() -> None:
    """Both happen while the sequence waits, and its place moves each time."""
    driver = Driver.make("radix", running=1, budget=64, pages=14)
    driver.add([900] * 5, max_tokens=6)
    driver.step()
    sibling = driver.add([*PREFIX, 2], max_tokens=1)
    middle = driver.add([800] * 20, max_tokens=1)
    driver.add([*PREFIX, 1], max_tokens=1)
    order = driver.scheduler._order
    driver.run()
    ended = list(driver.ended)
    assert ended.index(middle) < ended.index(sibling)
    assert len(order) == 0
    # The prefix is cached now: its next sibling is short, until strangers take all pages.
    short = driver.add([*PREFIX, 3], max_tokens=1)
    assert driver.scheduler._order.head().spec.id == short  # type: ignore[union-attr]
    assert driver.scheduler._order.short_head().spec.id == short  # type: ignore[union-attr]
    driver.run()
    driver.add([700] * 50, max_tokens=1)
    driver.run()
    again = driver.add([*PREFIX, 4], max_tokens=1)
    assert driver.scheduler._order.short_head() is None
    driver.run()
    assert driver.right(again, 1)


def test_what_was_evicted_since_counts_no_more_when_the_next_is_chosen() -> None:
    driver = Driver.make("radix", running=1, budget=64, pages=128)
    driver.add([*PREFIX, 1], max_tokens=1)
    driver.run()
    driver.add([*PREFIX, 2], max_tokens=1)
    stranger = driver.add([900] * 10, max_tokens=1)
    pool, order = driver.cache.pool, driver.scheduler._order
    pages = pool.allocate(pool.num_available)
    assert pages is not None
    pool.release(pages)
    order.begin(0)
    assert order.head().spec.id == stranger  # type: ignore[union-attr]


def test_short_ones_have_a_share_of_each_step_beside_a_long_prefill() -> None:
    driver = Driver.make("radix", budget=32, pages=256)
    driver.add(list(range(300)), max_tokens=1)
    driver.step()
    short = driver.add([900] * 5, max_tokens=1)
    driver.step()
    assert short in driver.ended
    rows = {row.sequence_id: len(row.tokens) // 4 for row in driver.runner.steps[-1].rows}
    assert rows == {1: 27, short: 5}


def test_short_ones_never_take_more_than_their_share_from_a_long_prefill() -> None:
    driver = Driver.make("radix", budget=32, pages=512, running=30)
    driver.add(list(range(200)), max_tokens=1)
    driver.step()
    for number in range(20):
        driver.add([900 - number] * 6, max_tokens=1)
    for _ in range(4):
        driver.step()
        rows = {row.sequence_id: len(row.tokens) // 4 for row in driver.runner.steps[-1].rows}
        assert rows[1] >= 12


def test_a_long_one_without_pages_is_not_overtaken_for_ever() -> None:
    """Short ones that came later would always fit, so they may not take what it waits for."""
    driver = Driver.make("radix", running=8, budget=16, pages=20)
    for number in range(2):
        driver.add([900 - number] * 4, max_tokens=12)
    driver.step()
    long = driver.add(list(range(64)), max_tokens=1)
    for number in range(400):
        driver.add([500 + number] * 4, max_tokens=8)
        driver.step()
        if long in driver.ended:
            break
    assert long in driver.ended


def test_short_ones_do_not_take_the_last_place_from_a_long_one_for_ever() -> None:
    driver = Driver.make("radix", running=1, budget=16, pages=64)
    long = driver.add(list(range(64)), max_tokens=1)
    for number in range(400):
        driver.add([500 + number] * 4, max_tokens=1)
        driver.step()
        if long in driver.ended:
            break
    assert long in driver.ended


def test_who_needs_what_another_prefill_computes_now_waits_for_that_one() -> None:
    """It left the first prefill half way; the second one brings its page, and ends earlier."""
    queue = Queue.make()
    order, cache = queue.order, queue.order._cache
    waiting = queue.add(40)
    order.begin(0)
    frontier = order._waiters[waiting.spec.id].frontier
    assert frontier is not None
    order.computes(Sequence(replace(waiting.spec, id=98)), frontier)
    assert order.head() is None
    # The page is there, and what comes behind it is computed by another one.
    following = (7, frontier[1])
    order.computes(Sequence(replace(waiting.spec, id=99)), following)
    order._grown(*frontier)
    cache.match_pages = lambda *_: (1, 7)  # type: ignore[method-assign]
    order.begin(0)
    assert order.head() is None
    order.computes(Sequence(replace(waiting.spec, id=99)), None)
    assert order.head() is waiting
