from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from worker.cache.pages import PagePool
from worker.cache.pins import Pins
from worker.cache.scope import PUBLIC


@dataclass
class Lab:
    """A pool of twenty pages, of which half may be pinned, and a clock."""

    now: float = 0.0
    fraction: float = 0.5
    pool: PagePool = field(default_factory=lambda: PagePool(20, 4))
    pins: Pins = field(init=False)

    def __post_init__(self) -> None:
        self.pins = Pins(self.pool, self.fraction, lambda: self.now)

    def prefix(self, count: int, before: list[int] | None = None) -> list[int]:
        """Cached pages, those before included."""
        before = before or []
        self.pool.share(before)
        pages = self.pool.allocate(count)
        assert pages is not None
        self.pool.index(pages, PUBLIC)
        self.pool.release(reversed(before + pages))
        return before + pages

    def pin(self, key: bytes, before: list[int], count: int, until: float) -> list[int] | None:
        """Pins those before and new ones, in use till then, behind them; None: it was refused."""
        fresh = self.pool.allocate(count)
        assert fresh is not None
        self.pool.index(fresh, PUBLIC)
        pages = before + fresh
        pinned = self.pins.pin(key, pages, until)
        self.pool.release(reversed(fresh))
        return pages if pinned else None

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


def test_what_has_ended_makes_room_for_the_next() -> None:
    lab = Lab()
    assert lab.pins.pin(b"one", lab.prefix(8), until=5)
    other = lab.prefix(8)
    assert not lab.pins.pin(b"other", other, until=9)
    lab.now = 5
    assert lab.pins.pin(b"other", other, until=9)
    assert (lab.pins.num_pages, lab.pool.num_used) == (8, 8)


@pytest.mark.parametrize("times", range(80, 110))
def test_pins_end_in_order_however_often_they_were_renewed(times: int) -> None:
    """What is left of old deadlines is cleared away now and then."""
    lab = Lab()
    pages, ends = lab.prefix(3), {b"first": 1}
    lab.pins.pin(b"first", pages, until=1)
    for number, until in enumerate(random.Random(times).sample(range(2, 1000), times)):
        ends[b"%d" % (number % 12)] = until
        assert lab.pins.pin(b"%d" % (number % 12), pages, until)
    for lab.now in sorted(ends.values()):
        assert lab.pins.expire() == 1
    assert lab.pool.num_used == 0


@pytest.mark.parametrize("held", [True, False])
def test_what_is_pinned_again_stays_though_nothing_may_lie_unused(*, held: bool) -> None:
    """Nothing but the pin holds its pages, be it under way or just over."""
    lab = Lab(pool=PagePool(20, 4, max_cached_pages=0))
    pages = lab.pin(b"k", [], 3, until=5)
    assert pages is not None
    lab.now = 4 if held else 5
    assert lab.pins.pin(b"k", pages, until=9)
    assert all(lab.pool.is_indexed(page) for page in pages)
    assert (lab.pool.num_used, len(lab.pins)) == (3, 1)
    lab.pins.clear()
    assert lab.pool.num_free == 20


@pytest.mark.parametrize("max_cached", [0, 2, 20])
@pytest.mark.parametrize("seed", range(6))
def test_any_pins_hold_what_a_table_of_them_holds(seed: int, max_cached: int) -> None:
    """Each begins with what another has pinned, as far as that goes."""
    rng = random.Random(seed)
    lab = Lab(fraction=0.3, pool=PagePool(20, 4, max_cached_pages=max_cached))
    table: dict[bytes, tuple[list[int], float]] = {}
    for _ in range(200):
        key, other = rng.choices([b"k", b"l", b"m"], k=2)
        cut, count, lease = rng.randint(0, 5), rng.randint(0, 4), rng.randint(-1, 9)
        before = table[other][0][:cut] if other in table else []
        pages = lab.pin(key, before, count, lab.now + lease)
        table = {name: pin for name, pin in table.items() if pin[1] > lab.now}
        others = {page for name, (held, _) in table.items() if name != key for page in held}
        fits = len(others | set(before)) + count <= lab.pins.max_pages
        assert (pages is not None) == (fits and lease > 0 and bool(before or count))
        if pages is not None:
            table[key] = (pages, lab.now + lease)
        pinned = {page for held, _ in table.values() for page in held}
        assert (len(lab.pins), lab.pins.num_pages) == (len(table), len(pinned))
        assert lab.pool.num_used == len(pinned)
        assert all(lab.pool.is_indexed(page) for page in pinned)
        lab.pool.check()
        lab.now += rng.randint(0, 2)


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
