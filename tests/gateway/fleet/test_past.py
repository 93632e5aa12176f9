from __future__ import annotations

from gateway.config import BreakerConfig
from gateway.fleet.past import Past


def past(grace_s: float = 10.0) -> Past:
    return Past(BreakerConfig(failures=2), grace_s)


def test_a_breaker_outlives_its_link_but_not_its_process() -> None:
    remembered = past()
    for _ in range(2):
        remembered.breaker_of("w0", "first").failed(0.0)
    assert remembered.breaker_of("w0", "first").state == "open"
    assert remembered.breaker_of("w0", "second").state == "closed"
    assert remembered.breaker_of("w1", "first").state == "closed"


def test_names_are_not_remembered_without_bound() -> None:
    remembered = past()
    for number in range(10_000):
        remembered.breaker_of(f"pod-{number}", "first")
    assert len(remembered._breakers) <= 4096


def test_a_model_whose_last_worker_left_is_waited_for_and_then_forgotten() -> None:
    remembered = past(grace_s=10.0)
    remembered.unserved("tiny", 100.0)
    assert remembered.may_return("tiny", 109.0)
    assert not remembered.may_return("tiny", 110.0)
    assert remembered.knows("tiny", 110.0)
    assert not remembered.knows("tiny", 10_000.0)
    assert not remembered._left_at


def test_a_model_that_is_served_again_is_not_waited_for() -> None:
    remembered = past()
    remembered.unserved("tiny", 100.0)
    remembered.served("tiny")
    assert not remembered.may_return("tiny", 101.0)
