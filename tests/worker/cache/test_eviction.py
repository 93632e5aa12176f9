"""Whose page goes next: the fair order against one that walks everything, and against plain LRU."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.cache.eviction import IDLE_TURNOVERS, EvictionOrder, FairOrder, LeastRecentlyUsed
from worker.cache.scope import PUBLIC, Account

NUM_PAGES = 20
IDLE_AFTER = IDLE_TURNOVERS * NUM_PAGES
ACCOUNTS = [
    PUBLIC,
    Account(b"heavy", weight=3),
    Account(b"sure", share=0.25),
    Account(b"small", cap=0.1),
    Account(b"both", weight=0.5, share=0.1, cap=0.3),
]


@dataclass
class Walking:
    """The same rules, by looking at everything each time."""

    clock: int = 0
    order: list[int] = field(default_factory=list)
    account: dict[int, Account] = field(default_factory=dict)
    active_at: dict[bytes, int] = field(default_factory=dict)

    def count(self, account: Account) -> int:
        return sum(one.name == account.name for one in self.account.values())

    def resting(self, account: Account) -> list[int]:
        return [page for page in self.order if self.account[page].name == account.name]

    def allowed(self) -> set[int]:
        """The pages that may go next; more than one only where accounts are even."""
        resting = [one for one in ACCOUNTS if self.resting(one)]
        idle = [one for one in resting if self.clock - self.active_at[one.name] >= IDLE_AFTER]
        if idle:
            first = min(self.active_at[one.name] for one in idle)
            return {self.resting(o)[0] for o in idle if self.active_at[o.name] == first}
        above = [one for one in resting if self.count(one) > int(one.share * NUM_PAGES)]
        if above:
            most = max(self.count(one) / one.weight for one in above)
            even = [one for one in above if self.count(one) / one.weight == most]
            return {self.resting(one)[0] for one in even}
        return {self.order[0]}

    def forget(self, page: int) -> None:
        self.order.remove(page)
        del self.account[page]


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_fair_order_does_what_walking_everything_does(data: st.DataObject) -> None:
    fair, walking = FairOrder(NUM_PAGES), Walking()
    for _ in range(data.draw(st.integers(1, 60))):
        _one_move(data, fair, walking)
        assert set(walking.order) == {page for page in range(NUM_PAGES) if page in fair}
        held = {one.name: walking.count(one) for one in ACCOUNTS if walking.count(one)}
        assert fair.pages_by_account() == held


def _one_move(data: st.DataObject, fair: FairOrder, walking: Walking) -> None:
    used = sorted(set(walking.account) - set(walking.order))
    absent = sorted(set(range(NUM_PAGES)) - set(walking.account))
    moves = ["touch", "allocated"]
    moves += ["charge"] * bool(absent) + ["rest", "unindex"] * bool(used)
    moves += ["rest", "share", "pop", "pop"] * bool(walking.order) if used else []
    moves += ["share", "pop", "pop"] * bool(walking.order)
    move = data.draw(st.sampled_from(moves))
    account = data.draw(st.sampled_from(ACCOUNTS))
    if move == "touch":
        fair.touch(account)
        walking.active_at[account.name] = walking.clock
    elif move == "allocated":
        count = data.draw(st.integers(1, IDLE_AFTER))
        fair.allocated(count)
        walking.clock += count
    elif move == "charge":
        pages = absent[: data.draw(st.integers(1, 4))]
        fair.charge(pages, account)
        walking.account.update(dict.fromkeys(pages, account))
        walking.active_at[account.name] = walking.clock
    elif move == "rest":
        _rest(data.draw(st.sampled_from(used)), fair, walking)
    elif move == "unindex":
        page = data.draw(st.sampled_from(used))
        fair.discharge(page)
        del walking.account[page]
    elif move == "share":
        page = data.draw(st.sampled_from(walking.order))
        fair.remove(page)
        walking.order.remove(page)
    else:
        allowed = walking.allowed()
        page = fair.pop()
        assert page in allowed
        fair.discharge(page)
        walking.forget(page)


def _rest(page: int, fair: FairOrder, walking: Walking) -> None:
    account = walking.account[page]
    fair.add(page)
    walking.order.append(page)
    walking.active_at[account.name] = walking.clock
    resting = walking.resting(account)
    above = resting[: max(len(resting) - int(account.cap * NUM_PAGES + 1e-6), 0)]
    for expected in above:
        assert fair.pop_above_cap() == expected
        fair.discharge(expected)
        walking.forget(expected)
    assert fair.pop_above_cap() is None


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from("arpuct"), st.integers(0, NUM_PAGES - 1)), max_size=80))
def test_with_one_account_fair_is_lru(moves: list[tuple[str, int]]) -> None:
    orders: list[EvictionOrder] = [FairOrder(NUM_PAGES), LeastRecentlyUsed()]
    account = Account(b"one", share=0.5)
    charged = set[int]()
    for move, page in moves:
        popped = [_same_move(order, move, page, charged, account) for order in orders]
        assert popped[0] == popped[1]
        assert len(orders[0]) == len(orders[1])
        charged = {page for page in range(NUM_PAGES) if _is_charged(orders[0], page)}


def _is_charged(order: EvictionOrder, page: int) -> bool:
    assert isinstance(order, FairOrder)
    return page in order._ledger_of


def _same_move(
    order: EvictionOrder, move: str, page: int, charged: set[int], account: Account
) -> int | None:
    if move == "c" and page not in charged:
        order.charge([page], account)
    elif move == "a" and page in charged and page not in order:
        order.add(page)
    elif move == "r" and page in order:
        order.remove(page)
    elif move == "t":
        order.touch(account)
    elif move == "u":
        order.allocated(7)
    elif move == "p" and len(order):
        popped = order.pop()
        order.discharge(popped)
        return popped
    return None


def rested(counts: dict[Account, int], num_pages: int = NUM_PAGES) -> FairOrder:
    """Accounts with so many pages at rest, numbered in this order."""
    order, page = FairOrder(num_pages), 0
    for account, count in counts.items():
        pages = list(range(page, page + count))
        order.charge(pages, account)
        for one in pages:
            order.add(one)
        page += count
    return order


def pops(order: EvictionOrder, count: int) -> list[int]:
    pages = []
    for _ in range(count):
        pages.append(order.pop())
        order.discharge(pages[-1])
    return pages


def test_the_one_who_holds_most_for_its_weight_gives_until_they_are_even() -> None:
    order = rested({Account(b"a", weight=2): 8, Account(b"b"): 6})
    # 8/2 against 6/1: b gives two of its own, then both are at 4 and take turns by weight.
    assert pops(order, 2) == [8, 9]
    assert sorted(pops(order, 3)) == [0, 1, 10]


def test_who_keeps_within_the_guarantee_loses_nothing_while_others_hold_more() -> None:
    order = rested({Account(b"sure", share=0.3): 6, Account(b"other"): 5})
    assert pops(order, 5) == [6, 7, 8, 9, 10]
    assert pops(order, 6) == [0, 1, 2, 3, 4, 5]


def test_an_idle_account_goes_first_guarantee_or_not() -> None:
    sure, other = Account(b"sure", share=0.3), Account(b"other")
    order = rested({sure: 3, other: 9})
    order.allocated(IDLE_AFTER - 1)
    order.touch(other)
    assert pops(order, 1) == [3]
    order.allocated(1)
    assert pops(order, 4) == [0, 1, 2, 4]


def test_the_longest_idle_goes_first_among_the_idle() -> None:
    first, second = Account(b"first"), Account(b"second")
    order = rested({first: 2, second: 9})
    order.touch(second)
    order.allocated(1)
    order.touch(first)
    order.allocated(IDLE_AFTER)
    assert pops(order, 3) == [2, 3, 4]


def test_a_new_weight_counts_at_once() -> None:
    order = rested({Account(b"a"): 6, Account(b"b"): 5})
    order.touch(Account(b"b", weight=0.5))
    assert pops(order, 2) == [6, 7]


def test_what_rose_while_nothing_was_at_rest_counts_when_something_is() -> None:
    a, b = Account(b"a"), Account(b"b")
    order = FairOrder(NUM_PAGES)
    order.charge([0, 1], a)
    order.add(0)
    order.remove(0)
    order.charge([2, 3, 4, 5], a)
    order.charge([6, 7, 8], b)
    order.add(6)
    order.add(0)
    assert pops(order, 1) == [0]


def test_the_heap_stays_small_whatever_rises_and_falls() -> None:
    order = FairOrder(NUM_PAGES)
    account = Account(b"a")
    for _ in range(1000):
        order.charge([0, 1], account)
        order.add(0)
        order.remove(0)
        for page in (0, 1):
            order.discharge(page)
    assert len(order._heap) <= 4 * 1 + 65
    assert not order._ledgers


def test_an_account_without_pages_is_forgotten() -> None:
    order = rested({Account(b"a"): 2})
    pops(order, 2)
    assert (order._ledgers, order._ledger_of, len(order._by_activity)) == ({}, {}, 0)


@pytest.mark.parametrize("wrong", [{"weight": 0}, {"share": 1.1}, {"cap": -0.1}])
def test_an_account_says_what_is_wrong(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Account(b"a", **wrong)
