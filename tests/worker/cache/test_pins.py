from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from worker.cache.pages import PagePool
from worker.cache.pins import Pins
from worker.cache.scope import PUBLIC


@dataclass
class Lab:
    """A pool of twenty pages, of which half may be pinned, and a clock."""

    now: float = 0.0
    pool: PagePool = field(default_factory=lambda: PagePool(20, 4))
    pins: Pins = field(init=False)

    def __post_init__(self) -> None:
        self.pins = Pins(self.pool, 0.5, lambda: self.now)

    def prefix(self, count: int, before: list[int] | None = None) -> list[int]:
        """Cached pages, those before included."""
        before = before or []
        self.pool.share(before)
        pages = self.pool.allocate(count)
        assert pages is not None
        self.pool.index(pages, PUBLIC)
        self.pool.release(reversed(before + pages))
        return before + pages

    def squeeze(self) -> None:
        """Takes all that can be had and gives it back."""
        pages = self.pool.allocate(self.pool.num_available)
        assert pages is not None
        self.pool.release(pages)


def test_pinned_pages_stay_until_their_time_and_not_longer() -> None:
    lab = Lab()
    pages = lab.prefix(3)
    assert lab.pins.pin(b"k", pages, until=10)
    lab.squeeze()
    assert all(lab.pool.is_indexed(page) for page in pages)
    lab.now = 9.9
    assert lab.pins.expire() == 0
    lab.now = 10
    assert lab.pins.expire() == 1
    assert (lab.pool.num_used, lab.pool.num_cached, lab.pins.num_pages) == (0, 3, 0)
    lab.squeeze()
    assert lab.pool.num_free == 20


def test_a_prefix_goes_back_from_its_tail() -> None:
    lab = Lab()
    pages = lab.prefix(3)
    lab.pins.pin(b"k", pages, until=1)
    lab.pins.unpin(b"k")
    lab.pool.allocate(17)
    gone = [page for taken in (lab.pool.allocate(1) for _ in range(3)) for page in taken or []]
    assert gone == pages[::-1]


def test_what_two_pins_share_counts_once_and_outlives_the_first() -> None:
    lab = Lab()
    stem = lab.prefix(6)
    one, other = lab.prefix(2, stem), lab.prefix(2, stem)
    assert lab.pins.pin(b"one", one, until=1)
    assert lab.pins.pin(b"other", other, until=2)
    assert lab.pins.num_pages == 10
    assert not lab.pins.pin(b"third", lab.prefix(1), until=9)
    lab.now = 1
    assert lab.pins.expire() == 1
    assert (lab.pins.num_pages, lab.pool.num_used) == (8, 8)
    lab.squeeze()
    assert all(lab.pool.is_indexed(page) for page in other)


def test_a_pin_that_is_too_large_or_too_late_changes_nothing() -> None:
    lab = Lab()
    pages = lab.prefix(11)
    assert not lab.pins.pin(b"k", pages, until=5)
    assert not lab.pins.pin(b"k", pages[:2], until=0)
    assert not lab.pins.pin(b"k", [], until=5)
    assert (lab.pool.num_used, len(lab.pins)) == (0, 0)


def test_pinning_again_renews_and_does_not_add() -> None:
    lab = Lab()
    pages = lab.prefix(8)
    assert lab.pins.pin(b"k", pages, until=5)
    assert lab.pins.pin(b"k", pages, until=9)
    lab.now = 5
    assert lab.pins.expire() == 0
    assert lab.pins.num_pages == 8
    for until in range(10, 500):
        assert lab.pins.pin(b"k", pages, until)
    assert len(lab.pins._deadlines) <= 2 * 1 + 65
    lab.pins.clear()
    assert (lab.pool.num_used, len(lab.pins)) == (0, 0)


def test_a_key_may_change_its_prefix_within_the_bound() -> None:
    lab = Lab()
    first, second = lab.prefix(8), lab.prefix(9)
    assert lab.pins.pin(b"k", first, until=5)
    assert lab.pins.pin(b"k", second, until=5)
    assert (lab.pins.num_pages, lab.pool.num_used) == (9, 9)


def test_who_needs_room_gets_the_one_that_would_end_first() -> None:
    lab = Lab()
    late, soon = lab.prefix(2), lab.prefix(2)
    lab.pins.pin(b"late", late, until=9)
    lab.pins.pin(b"soon", soon, until=3)
    assert lab.pins.release_next()
    lab.squeeze()
    assert [lab.pool.is_indexed(page) for page in (*late, *soon)] == [True, True, False, False]
    assert lab.pins.release_next()
    assert not lab.pins.release_next()


def test_a_fraction_must_leave_room() -> None:
    with pytest.raises(ValueError, match="max_fraction"):
        Pins(PagePool(4, 4), 1.0, lambda: 0.0)
