"""Lately assigned work: halves in time, and a newcomer begins with the mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.work import Account, Work

NAMES = frozenset({"a", "b"})


def work(half_life_s: float = 100.0) -> Work:
    made = Work(half_life_s)
    made.follow(NAMES)
    return made


def test_the_excess_is_what_is_beyond_the_mean() -> None:
    made = work()
    made.add("a", 100, now=0)
    reading = made.at(0)
    assert (reading.excess("a"), reading.excess("b")) == (50, 0)
    assert (reading.total("a"), reading.total("b")) == (100, 0)


def test_half_is_forgotten_in_the_half_life() -> None:
    made = work(half_life_s=100)
    made.add("a", 100, now=1000)
    assert made.at(1100).total("a") == pytest.approx(50)
    made.add("b", 50, now=1100)
    assert made.at(1100).excess("a") == pytest.approx(0)


def test_a_newcomer_begins_with_the_mean_and_who_left_is_forgotten() -> None:
    made = work()
    made.add("a", 100, now=0)
    made.follow(frozenset({"a", "b", "c"}))
    assert made.at(0).total("c") == 50
    made.follow(frozenset({"c"}))
    made.add("a", 100, now=0)
    assert (made.at(0).total("a"), made.at(0).excess("c")) == (0, 0)


def test_nobody_has_done_anything_in_an_empty_fleet() -> None:
    assert Work(1).at(0).excess("a") == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 10**6), st.floats(0, 5000))))
def test_however_long_it_runs_it_equals_the_sum_of_what_is_left(
    added: list[tuple[str, int, float]],
) -> None:
    made, now, told = work(half_life_s=50), 0.0, []
    for name, tokens, later in added:
        now += later
        made.add(name, tokens, now)
        told.append((name, tokens, now))
    for name in NAMES:
        left = sum(tokens * 2 ** ((at - now) / 50) for one, tokens, at in told if one == name)
        assert made.at(now).total(name) == pytest.approx(left, rel=1e-6, abs=1e-6)


def test_what_others_had_computed_is_what_the_worker_tells_beyond_ours() -> None:
    account = Account()
    assert account.grown(0, 0) == 0
    assert account.grown(100, 100) == 0
    assert account.grown(400, 150) == 250
    assert account.grown(400, 150) == 0
    assert account.grown(500, 200) == 50


def test_what_was_computed_before_we_came_is_nobodys() -> None:
    account = Account()
    assert account.grown(1_000_000, 300) == 0
    assert account.grown(1_000_500, 300) == 500


def test_what_we_sent_and_is_not_yet_computed_takes_nothing_from_others() -> None:
    account = Account()
    account.grown(1, 0)
    assert account.grown(1001, 0) == 1000
    assert account.grown(1001, 900) == 0
    assert account.grown(1901, 900) == 0
    assert account.grown(2001, 900) == 100


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1))
def test_once_all_is_computed_ours_and_theirs_add_up(rounds: list[tuple[int, int]]) -> None:
    account, computed, own = Account(), 1, 0
    others = account.grown(computed, own)
    for ours, theirs in rounds:
        own += ours
        others += account.grown(computed, own)
        computed += ours + theirs
        others += account.grown(computed, own)
    assert others == computed - 1 - own
