"""The index names exactly the views that hold a boundary, through joins, leaves and clears."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.fleet.view import View
from gateway.routing.index import Index, Seat

A, B, C = (letter.encode() * 16 for letter in "abc")


def seated(index: Index[str], name: str, *digests: bytes) -> View:
    view = View()
    index.join(name, view)
    for digest in digests:
        view.store(digest, 1)
    return view


def test_groups_come_from_the_deepest_up_and_everybody_once() -> None:
    index: Index[str] = Index()
    seated(index, "w0", A)
    seated(index, "w1", A, B)
    seated(index, "w2")
    seated(index, "w3", B)
    groups = [(depth, index.owners(seats)) for depth, seats in index.deepest([A, B, C], index.live)]
    assert groups == [(2, ["w1", "w3"]), (1, ["w0"]), (0, ["w2"])]


def test_those_who_may_not_are_left_out() -> None:
    index: Index[str] = Index()
    view = View()
    seat = index.join("w0", view)
    view.store(A, 1)
    seated(index, "w1")
    groups = list(index.deepest([A], index.live & ~seat.bit))
    assert [index.owners(seats) for _, seats in groups] == [["w1"]]


def test_many_are_named_like_few() -> None:
    index: Index[str] = Index()
    for number in range(100):
        seated(index, f"w{number}", *([A] if number % 3 else []))
    assert index.owners(index.holders(A)) == [f"w{n}" for n in range(100) if n % 3]
    assert index.owners(index.live) == [f"w{n}" for n in range(100)]


def test_who_left_is_not_named_and_what_it_held_is_swept_out() -> None:
    index: Index[str] = Index()
    view = View()
    seat = index.join("w0", view)
    for number in range(100):
        view.store(number.to_bytes(16, "little"), 1)
    seat.leave(view)
    assert index.holders((5).to_bytes(16, "little")) == 0
    assert len(index) == 100
    assert index.sweep(60)
    assert len(index) == 40
    assert not index.sweep(60)
    assert len(index) == 0
    view.store(A, 1)
    assert index.holders(A) == 0


def test_a_thousand_workers_that_come_and_go_leave_nothing_behind() -> None:
    index: Index[str] = Index()
    for number in range(1000):
        view = View()
        seat = index.join(f"w{number}", view)
        for one in range(20):
            view.store((number * 10 + one).to_bytes(16, "little"), 1)
        view.expect([(b"guess" + bytes([number % 256]), 1)], now=0)
        seat.leave(view)
        index.sweep(64)
    while index.sweep(64):
        pass
    assert len(index) == 0
    assert index.live == 0
    assert seated(index, "last", A) is not None
    assert index.holders(A).bit_length() < 10


DIGESTS = [number.to_bytes(16, "little") for number in range(5)]
NAMES = ["w0", "w1", "w2"]


class Indexed(RuleBasedStateMachine):
    """Against the views themselves, asked one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.index: Index[str] = Index()
        self.views: dict[str, View] = {}
        self.seats: dict[str, Seat[str]] = {}

    @rule(name=st.sampled_from(NAMES))
    def come_or_go(self, name: str) -> None:
        if name in self.views:
            self.seats.pop(name).leave(self.views.pop(name))
        else:
            self.views[name] = View(max_boundaries=3)
            self.seats[name] = self.index.join(name, self.views[name])

    @rule(name=st.sampled_from(NAMES), digest=st.sampled_from(DIGESTS), what=st.integers(0, 4))
    def change(self, name: str, digest: bytes, what: int) -> None:
        view = self.views.get(name)
        if view is None:
            return
        if what == 0:
            view.store(digest, 1)
        elif what == 1:
            view.evict(digest)
        elif what == 2:
            view.replace([(digest, 1)])
        elif what == 3:
            view.expect([(digest, 1)], now=0)
        else:
            view.expire(1000)

    @rule(limit=st.integers(0, 4))
    def sweep(self, limit: int) -> None:
        self.index.sweep(limit)

    @invariant()
    def the_holders_are_those_whose_views_hold(self) -> None:
        for digest in DIGESTS:
            named = set(self.index.owners(self.index.holders(digest)))
            assert named == {name for name, view in self.views.items() if digest in view}


TestIndexed = Indexed.TestCase
TestIndexed.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
