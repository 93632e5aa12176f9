"""A view is the worker's truth at message grain, and what is on its way there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.fleet.ledger import ASK_AGAIN_AFTER, CacheEvent, Change, Ledger
from gateway.fleet.view import SILENT_AFTER, Expectation, Match, View

A, B, C, D = (letter.encode() * 16 for letter in "abcd")
LONG = 1000


class Listener:
    """What a watcher was told, as the set of digests that it would name."""

    def __init__(self) -> None:
        self.digests: set[bytes] = set()

    def held(self, digest: bytes) -> None:
        assert digest not in self.digests
        self.digests.add(digest)

    def gone(self, digest: bytes) -> None:
        self.digests.remove(digest)

    def emptied(self, digests: dict[bytes, int]) -> None:
        assert self.digests == set(digests)
        self.digests.clear()


@pytest.fixture
def view() -> View:
    return View()


def test_the_deepest_boundary_counts(view: View) -> None:
    view.store(A, 10)
    view.store(C, 30)
    assert view.matched([A, B, C, D]) == Match(3, 30)
    assert view.matched([A, B, D]) == Match(1, 10)
    assert view.matched([B, D]) == Match(0, 0)


def test_what_was_evicted_is_not_held(view: View) -> None:
    view.store(A, 10)
    view.evict(A)
    view.evict(B)
    assert len(view) == 0
    assert view.matched([A]).depth == 0


def test_a_guess_counts_until_the_worker_tells(view: View) -> None:
    expectation = view.expect([(A, 9), (B, 19)], now=0)
    assert view.matched([A, B]) == Match(2, 19, is_exact=False)
    view.store(A, 10)
    view.store(B, 20)
    assert view.matched([A, B]) == Match(2, 20)
    expectation.computed()
    assert view.matched([A, B]) == Match(2, 20)
    assert view.num_guesses == 0


def test_what_the_worker_has_not_stored_by_the_first_output_it_does_not_hold(view: View) -> None:
    expectation = view.expect([(A, 9), (B, 19)], now=0)
    view.store(A, 10)
    expectation.computed()
    assert view.matched([A, B]) == Match(1, 10)


def test_a_guess_of_a_request_that_was_cancelled_is_dropped(view: View) -> None:
    expectation = view.expect([(A, 9)], now=0)
    expectation.over()
    expectation.over()
    assert len(view) == 0


def test_a_guess_lasts_as_long_as_one_of_its_requests(view: View) -> None:
    first, second = view.expect([(A, 9)], now=0), view.expect([(A, 9)], now=0)
    first.over()
    assert A in view
    second.over()
    assert A not in view


def test_a_guess_that_nobody_settles_expires() -> None:
    view = View(guess_s=60)
    view.expect([(A, 9)], now=0)
    view.expect([(B, 9)], now=30)
    view.expire(60)
    assert A not in view
    assert B in view
    view.expect([(C, 9)], now=91)
    assert B not in view


def test_a_second_request_renews_the_guess() -> None:
    view = View(guess_s=60)
    view.expect([(A, 9)], now=0)
    view.expect([(B, 9)], now=1)
    view.expect([(A, 9)], now=50)
    view.expire(100)
    assert A in view
    assert B not in view


def test_what_is_evicted_is_no_longer_expected_either(view: View) -> None:
    view.expect([(A, 9)], now=0)
    view.evict(A)
    assert A not in view


def test_the_longest_unused_is_forgotten_first() -> None:
    view = View(max_boundaries=2)
    view.store(A, 1)
    view.store(B, 2)
    view.touch(A)
    view.store(C, 3)
    assert list(view.stored) == [A, C]


def test_a_million_prefixes_leave_as_many_entries_as_allowed() -> None:
    view = View(max_boundaries=1000)
    for number in range(1_000_000):
        view.store(number.to_bytes(16, "little"), number)
    assert 980 <= len(view) <= 1000


def test_a_worker_that_tells_nothing_is_believed_what_was_guessed(view: View) -> None:
    for number in range(SILENT_AFTER - 1):
        view.expect([(number.to_bytes(16, "little"), LONG)], now=0).computed()
    assert not view.is_stale
    view.expect([(A, LONG)], now=0).computed()
    assert view.is_stale
    assert view.matched([A]) == Match(1, LONG, is_exact=False)


def test_one_word_shows_that_a_worker_is_not_silent(view: View) -> None:
    for number in range(SILENT_AFTER - 1):
        view.expect([(number.to_bytes(16, "little"), LONG)], now=0).computed()
    view.store(A, 5)
    view.expect([(B, LONG)], now=0).computed()
    assert not view.is_silent


def test_short_prompts_cancelled_ones_and_known_ones_are_no_silence(view: View) -> None:
    view.store(B, LONG)
    for _ in range(2 * SILENT_AFTER):
        view.expect([(A, 100)], now=0).computed()
        view.expect([(C, LONG)], now=0).over()
        view.expect([(B, LONG)], now=0).computed()
    assert not view.is_silent


def test_the_first_words_of_a_silent_worker_ask_for_a_snapshot(view: View) -> None:
    ledger = Ledger(view)
    for number in range(SILENT_AFTER):
        view.expect([(number.to_bytes(16, "little"), LONG)], now=0).computed()
    assert not ledger.take(1, [CacheEvent(Change.STORED, A, 10)])
    ledger.open(1, [(A, 10)])
    assert not view.is_stale
    assert dict(view.stored) == {A: 10}


def test_a_watcher_knows_what_was_there_before(view: View) -> None:
    view.store(A, 1)
    view.expect([(B, 2)], now=0)
    listener = Listener()
    view.watch(listener)
    assert listener.digests == {A, B}
    assert set(view.detach()) == {A, B}
    view.store(C, 3)
    assert listener.digests == {A, B}


def test_a_step_that_repeats_events_applies_only_the_new_ones(view: View) -> None:
    ledger = Ledger(view)
    stored, evicted = CacheEvent(Change.STORED, A, 1), CacheEvent(Change.EVICTED, A)
    assert ledger.take(2, [stored, evicted])
    assert ledger.take(1, [stored])
    assert not view.stored
    assert ledger.take(3, [stored, evicted, CacheEvent(Change.STORED, B, 2)])
    assert dict(view.stored) == {B: 2}


def test_a_gap_is_told_once_and_again_when_nobody_answers(view: View) -> None:
    ledger = Ledger(view)
    assert not ledger.take(2, [CacheEvent(Change.STORED, A, 1)])
    assert view.is_stale
    answers = [ledger.take(2, []) for _ in range(ASK_AGAIN_AFTER)]
    assert answers.count(False) == 1
    assert not answers[-1]


def test_an_old_snapshot_changes_nothing(view: View) -> None:
    ledger = Ledger(view)
    ledger.open(5, [(A, 1)])
    ledger.open(4, [(B, 1)])
    assert dict(view.stored) == {A: 1}


DIGESTS = [number.to_bytes(16, "little") for number in range(6)]
expectations = st.lists(st.tuples(st.sampled_from(DIGESTS), st.just(LONG)), max_size=4)


class Watched(RuleBasedStateMachine):
    """Whatever happens to a view, its watcher names exactly what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.view = View(max_boundaries=4, guess_s=10)
        self.listener = Listener()
        self.view.watch(self.listener)
        self.open: deque[Expectation] = deque()
        self.now = 0.0

    @rule(digest=st.sampled_from(DIGESTS))
    def store(self, digest: bytes) -> None:
        self.view.store(digest, 1)

    @rule(digest=st.sampled_from(DIGESTS))
    def evict(self, digest: bytes) -> None:
        self.view.evict(digest)

    @rule(digests=st.lists(st.sampled_from(DIGESTS), unique=True, max_size=4))
    def replace(self, digests: list[bytes]) -> None:
        self.view.replace([(digest, 1) for digest in digests])

    @rule()
    def clear(self) -> None:
        self.view.clear()

    @rule(boundaries=expectations, later=st.floats(0, 6))
    def expect(self, boundaries: list[tuple[bytes, int]], later: float) -> None:
        self.now += later
        self.open.append(self.view.expect(boundaries, self.now))

    @rule()
    def computed(self) -> None:
        if self.open:
            self.open.popleft().computed()

    @rule()
    def over(self) -> None:
        if self.open:
            self.open.popleft().over()

    @invariant()
    def the_watcher_is_right(self) -> None:
        assert self.listener.digests == {one for one in DIGESTS if one in self.view}
        assert len(self.listener.digests) == len(self.view)
        assert len(self.view.stored) <= 4


TestWatched = Watched.TestCase
TestWatched.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class Truth:
    """A worker's cache, and the steps in which it tells of it."""

    def __init__(self) -> None:
        self.held: dict[bytes, int] = {}
        self.sequence = 0

    def change(self, change: Change, digest: bytes, num_tokens: int) -> CacheEvent:
        self.sequence += 1
        if change is Change.STORED:
            self.held[digest] = num_tokens
        elif change is Change.EVICTED:
            self.held.pop(digest, None)
        else:
            self.held.clear()
        return CacheEvent(change, digest, num_tokens)


changes = st.tuples(
    st.sampled_from([Change.STORED, Change.STORED, Change.EVICTED, Change.CLEARED]),
    st.sampled_from(DIGESTS),
    st.integers(1, 99),
)
# What becomes of each step on its way: dropped, twice, or this many steps late.
fates = st.one_of(st.just("drop"), st.just("twice"), st.integers(0, 3))


@given(st.lists(st.tuples(st.lists(changes, max_size=3), fates), max_size=25))
def test_the_view_is_the_workers_truth_after_any_drop_duplicate_or_reorder(
    steps: list[tuple[list[tuple[Change, bytes, int]], str | int]],
) -> None:
    truth, view = Truth(), View()
    ledger = Ledger(view)
    for sequence, events, snapshot in arrivals(truth, steps):
        if snapshot is not None:
            ledger.open(sequence, snapshot.items())
        elif not ledger.take(sequence, events):
            ledger.open(truth.sequence, dict(truth.held).items())
    # Heartbeats carry the number, so that nothing stays hidden.
    for _ in range(2):
        if not ledger.take(truth.sequence, []):
            ledger.open(truth.sequence, dict(truth.held).items())
    assert dict(view.stored) == truth.held
    assert not view.is_stale


Arrival = tuple[int, list[CacheEvent], dict[bytes, int] | None]


def arrivals(
    truth: Truth, steps: list[tuple[list[tuple[Change, bytes, int]], str | int]]
) -> Iterator[Arrival]:
    """The steps as they come through: the truth moves on while they are under way."""
    late: list[tuple[int, Arrival]] = []
    for number, (step, fate) in enumerate(steps):
        arrival = ([truth.change(*change) for change in step], truth.sequence)
        step_now: Arrival = (arrival[1], arrival[0], None)
        if fate == "twice":
            yield step_now
            yield step_now
        elif isinstance(fate, int):
            late.append((number + fate, step_now))
        yield from (one for due, one in late if due == number)
        late = [(due, one) for due, one in late if due != number]
    yield from (one for _, one in late)
