"""Few keys move, work is balanced, and the floor keeps affinity at low load."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.ring import Choice, LoadBound, Ring, choose

KEYS = [number.to_bytes(4, "little") for number in range(4000)]
NAMES = [f"worker-{number}" for number in range(8)]


def first(ring: Ring) -> list[str]:
    return [next(ring.preference(key)) for key in KEYS]


def test_every_worker_stands_once_in_every_preference() -> None:
    ring = Ring(NAMES)
    for key in KEYS[:50]:
        assert sorted(ring.preference(key)) == sorted(NAMES)


def test_a_worker_that_leaves_moves_only_its_own_keys() -> None:
    before, after = first(Ring(NAMES)), first(Ring(NAMES[1:]))
    assert all(new == old for old, new in zip(before, after, strict=True) if old != NAMES[0])


def test_a_worker_that_comes_takes_about_its_share() -> None:
    before, after = first(Ring(NAMES)), first(Ring([*NAMES, "worker-8"]))
    moved = [new for old, new in zip(before, after, strict=True) if new != old]
    assert set(moved) == {"worker-8"}
    assert len(moved) < 1.5 * len(KEYS) / 9


def test_keys_are_balanced() -> None:
    counts = Counter(first(Ring(NAMES)))
    assert max(counts.values()) < 1.25 * len(KEYS) / len(NAMES)


def test_the_order_does_not_depend_on_the_order_of_the_names() -> None:
    assert first(Ring(NAMES)) == first(Ring(NAMES[::-1]))


def test_an_empty_ring_prefers_nobody() -> None:
    assert list(Ring([]).preference(b"key")) == []


def test_under_the_floor_affinity_holds_whatever_the_mean() -> None:
    load = dict.fromkeys(NAMES, 0) | {NAMES[0]: 16}
    assert choose(NAMES, load, LoadBound(floor=16)) == Choice(NAMES[0], 0)
    assert choose(NAMES, load | {NAMES[0]: 17}, LoadBound(floor=16)) == Choice(NAMES[1], 1)


def test_over_the_floor_the_mean_decides() -> None:
    load = dict.fromkeys(NAMES, 100)
    bound = LoadBound(16, 1.25)
    assert choose(NAMES, load | {NAMES[0]: 125}, bound) == Choice(NAMES[0], 0)
    assert choose(NAMES, load | {NAMES[0]: 160, NAMES[1]: 150}, bound) == Choice(NAMES[2], 2)


def test_workers_without_a_load_are_not_there() -> None:
    assert choose(NAMES, {NAMES[3]: 0}, LoadBound()) == Choice(NAMES[3], 0)
    assert choose(NAMES, {}, LoadBound()) is None


@given(st.lists(st.integers(0, 500), min_size=8, max_size=8))
def test_there_is_always_a_worker_within_bounds(loads: list[int]) -> None:
    load = dict(zip(NAMES, loads, strict=True))
    choice = choose(NAMES, load, LoadBound())
    assert choice is not None
    assert load[choice.name] <= max(16, 1.25 * sum(loads) / 8)
