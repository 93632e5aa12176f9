from __future__ import annotations

import pytest

from gateway.config import BreakerConfig
from gateway.fleet.breaker import Breaker

CONFIG = BreakerConfig(failures=3, successes=2, open_s=10.0, max_open_s=25.0)


@pytest.fixture
def breaker() -> Breaker:
    return Breaker(CONFIG)


def trip(breaker: Breaker, now: float = 0.0) -> None:
    for _ in range(CONFIG.failures):
        breaker.failed(now)


def test_single_failures_open_nothing(breaker: Breaker) -> None:
    for _ in range(50):
        breaker.failed(0.0)
        breaker.failed(0.0)
        breaker.succeeded()
    assert breaker.allows(0.0, in_flight=9)


def test_failures_in_a_row_keep_requests_away_for_a_while(breaker: Breaker) -> None:
    trip(breaker)
    assert breaker.state == "open"
    assert not breaker.allows(9.9, in_flight=0)


def test_then_one_request_may_try_and_one_more_for_each_success(breaker: Breaker) -> None:
    trip(breaker)
    assert breaker.allows(10.0, in_flight=0)
    assert not breaker.allows(10.0, in_flight=1)
    breaker.succeeded()
    assert breaker.allows(10.0, in_flight=1)
    assert not breaker.allows(10.0, in_flight=2)


def test_successes_close_it(breaker: Breaker) -> None:
    trip(breaker)
    breaker.succeeded()
    assert not breaker.allows(11.0, in_flight=5)
    breaker.succeeded()
    assert breaker.allows(11.0, in_flight=5)


def test_a_failed_trial_opens_it_for_twice_as_long_within_bounds(breaker: Breaker) -> None:
    trip(breaker)
    breaker.failed(10.0)
    assert not breaker.allows(29.9, in_flight=0)
    assert breaker.allows(30.0, in_flight=0)
    breaker.failed(30.0)
    assert breaker.allows(55.0, in_flight=0)


def test_failures_of_what_was_sent_before_do_not_prolong_it(breaker: Breaker) -> None:
    trip(breaker)
    for _ in range(20):
        breaker.failed(5.0)
    assert breaker.allows(10.0, in_flight=0)


def test_another_process_begins_anew(breaker: Breaker) -> None:
    trip(breaker)
    breaker.reset()
    assert breaker.allows(0.0, in_flight=5)
