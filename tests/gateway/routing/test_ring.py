"""Few keys move, work is balanced, and the floor keeps affinity at low load."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.ring import LoadBound, Ring

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


@given(st.integers(2, 12), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_hardly_more_than_its_share_moves_when_one_comes_or_goes(count: int, seed: int) -> None:
    names = [f"worker-{seed}-{number}" for number in range(count)]
    few, many = Ring(names[1:]), Ring(names)
    moved = sum(next(few.preference(key)) != next(many.preference(key)) for key in KEYS[:2000])
    # Two standard deviations of counting 2,000 keys on top.
    assert moved / 2000 <= 1 / count + 0.02 + 2 * (1 / count / 2000) ** 0.5


def test_keys_are_balanced() -> None:
    counts = Counter(first(Ring(NAMES)))
    assert max(counts.values()) < 1.25 * len(KEYS) / len(NAMES)


def test_the_order_does_not_depend_on_the_order_of_the_names() -> None:
    assert first(Ring(NAMES)) == first(Ring(NAMES[::-1]))


def test_an_empty_ring_prefers_nobody() -> None:
    assert list(Ring([]).preference(b"key")) == []


def test_under_the_floor_the_mean_does_not_matter() -> None:
    assert LoadBound(floor=16).limit([0] * 8) == 16
    assert LoadBound(floor=16).limit([]) == 16


def test_over_the_floor_the_mean_decides() -> None:
    assert LoadBound(16, 1.25).limit([100] * 8) == 125


@given(st.lists(st.integers(0, 500), min_size=1, max_size=8))
def test_somebody_is_always_within_bounds(sequences: list[int]) -> None:
    assert min(sequences) <= LoadBound().limit(sequences)
