from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.queueing.fair import FairQueue, Patience


@dataclass(eq=False)
class Item:
    tenant_id: str = "a"
    bucket: bytes = b"x"
    since: float = 0.0
    weight: float = 1.0
    rank: int = 1
    tokens: int = 100


def drain(queue: FairQueue[Item], count: int, now: float = 0.0) -> list[Item]:
    taken = []
    for _ in range(count):
        item = next(queue.candidates(now))
        queue.remove(item)
        queue.charge(item.tenant_id, item.weight, item.tokens)
        taken.append(item)
    return taken


def filled(*items: Item, ageing_s: float = 10.0) -> FairQueue[Item]:
    queue: FairQueue[Item] = FairQueue(Patience(ageing_s))
    for item in items:
        queue.put(item)
    return queue


def test_tenants_share_by_weight_whatever_they_send() -> None:
    flood = [Item("flood", since=i / 1e6) for i in range(900)]
    heavy = [Item("heavy", weight=3.0, since=i / 1e6) for i in range(300)]
    small = [Item("small", tokens=25, since=i / 1e6) for i in range(300)]
    served = Counter(item.tenant_id for item in drain(filled(*flood, *heavy, *small), 400))
    # In tokens: flood 1, heavy 3, small 1; small's requests are four times smaller.
    assert served["heavy"] == 3 * served["flood"]
    assert abs(served["small"] - 4 * served["flood"]) <= 4


def test_one_prefix_is_drained_before_the_next() -> None:
    items = [Item(bucket=bytes([i % 3]), since=i / 1000) for i in range(12)]
    order = [item.bucket for item in drain(filled(*items), 12)]
    assert order == [b"\0"] * 4 + [b"\1"] * 4 + [b"\2"] * 4


def test_within_a_prefix_the_oldest_goes_first() -> None:
    items = [Item(since=i / 1000) for i in range(5)]
    assert drain(filled(*items), 5) == items


def test_another_prefix_is_not_bypassed_for_ever() -> None:
    queue = filled(Item(bucket=b"hot", since=0.0), Item(bucket=b"cold", since=0.1))
    queue.put(Item(bucket=b"hot", since=0.2))
    assert [item.bucket for item in drain(queue, 3, now=0.3)] == [b"hot", b"hot", b"cold"]
    queue = filled(Item(bucket=b"hot", since=0.0), Item(bucket=b"cold", since=0.1))
    queue.put(Item(bucket=b"hot", since=9.0))
    assert [item.bucket for item in drain(queue, 3, now=9.0)] == [b"hot", b"cold", b"hot"]


def test_a_higher_class_goes_first_and_a_long_wait_rises() -> None:
    low, high = Item("low", rank=2, since=0.0), Item("high", rank=0, since=15.0)
    queue = filled(low, high, ageing_s=10.0)
    assert next(queue.candidates(16.0)) is high
    assert next(queue.candidates(31.0)) is low


def test_one_that_comes_back_from_idling_has_saved_nothing() -> None:
    queue = filled(*(Item("busy") for _ in range(50)))
    drain(queue, 20)
    for _ in range(20):
        queue.put(Item("idle"))
    served = Counter(item.tenant_id for item in drain(queue, 20))
    assert 9 <= served["idle"] <= 11


def test_a_newcomer_has_saved_nothing_though_nobody_waits() -> None:
    queue = filled(*(Item("old") for _ in range(50)))
    drain(queue, 50)
    for _ in range(20):
        queue.put(Item("new"))
    for _ in range(20):
        queue.put(Item("old"))
    served = Counter(item.tenant_id for item in drain(queue, 20))
    assert 9 <= served["new"] <= 11


def test_some_behind_the_next_are_shown_for_when_it_cannot_go() -> None:
    items = [Item(bucket=bytes([number]), since=float(number)) for number in range(20)]
    shown = list(filled(*items).candidates(0.0))
    assert shown[:3] == items[:3]
    assert len(shown) < 10


def test_counters_are_bounded() -> None:
    queue: FairQueue[Item] = FairQueue(max_counters=10)
    for number in range(1000):
        queue.charge(str(number), 1.0, 5)
    assert len(queue._served) == 10


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([b"x", b"y"])), max_size=40),
    st.data(),
)
def test_nothing_is_lost_or_doubled(puts: list[tuple[str, bytes]], data: st.DataObject) -> None:
    queue: FairQueue[Item] = FairQueue()
    inside: list[Item] = []
    for position, (tenant, bucket) in enumerate(puts):
        item = Item(tenant, bucket, float(position))
        queue.put(item)
        inside.append(item)
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(inside))
            assert queue.remove(gone)
            assert not queue.remove(gone)
            inside.remove(gone)
        assert len(queue) == len(inside)
        assert dict(queue.counts()) == Counter(item.tenant_id for item in inside)
    assert sorted(map(id, drain(queue, len(inside), now=100.0))) == sorted(map(id, inside))
    assert len(queue) == 0
    assert not list(queue.candidates(0.0))
