from __future__ import annotations

import pytest

from gateway.fleet.hold import Hold


@pytest.fixture
def held() -> Hold:
    hold = Hold()
    hold.refused(100.0)
    return hold


def test_a_worker_that_never_refused_is_free() -> None:
    hold = Hold()
    hold.tried(0.0)
    assert hold.allows(0.0)
    assert not hold.is_on


def test_a_refusal_holds_it_for_a_moment_and_ends_by_itself(held: Hold) -> None:
    assert not held.allows(100.9)
    assert held.allows(101.0)


def test_refusals_of_one_burst_count_once(held: Hold) -> None:
    for _ in range(50):
        held.refused(100.1)
    assert held.allows(101.0)


def test_then_one_request_may_try(held: Hold) -> None:
    held.tried(101.0)
    assert not held.allows(101.5)
    held.succeeded(101.6)
    assert held.allows(101.6)
    assert not held.is_on


def test_a_trial_of_which_nothing_is_heard_keeps_nobody_away_for_ever(held: Hold) -> None:
    held.tried(101.0)
    assert held.allows(102.0)


def test_each_refused_trial_doubles_it_within_a_bound(held: Hold) -> None:
    now, lengths = 101.0, []
    for _ in range(5):
        held.tried(now)
        held.refused(now)
        began = now
        while not held.allows(now):
            now += 0.5
        lengths.append(now - began)
    assert lengths == [2.0, 4.0, 8.0, 10.0, 10.0]


def test_what_was_sent_before_proves_nothing(held: Hold) -> None:
    held.succeeded(100.5)
    assert not held.allows(100.5)
    held.succeeded(101.0)
    assert not held.is_on


def test_after_a_success_it_begins_anew(held: Hold) -> None:
    held.tried(101.0)
    held.refused(101.0)
    held.tried(103.0)
    held.succeeded(103.0)
    held.refused(104.0)
    assert held.allows(105.0)
