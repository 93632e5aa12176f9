"""What left a cache is remembered, the last ones only."""

from __future__ import annotations

from gateway.fleet.departures import Departure, Departures


def test_the_last_departure_from_each_worker_is_remembered() -> None:
    departures = Departures()
    for at in (1.0, 2.0):
        departures.note("w0", b"d", Departure(at, by_another=at > 1))
    assert departures.last("w0", b"d") == Departure(2.0, by_another=True)
    assert departures.last("w1", b"d") is None


def test_the_oldest_are_forgotten_and_a_limit_of_none_keeps_none() -> None:
    for limit in (0, 2):
        departures = Departures(limit)
        for number in range(5):
            departures.note("w0", bytes([number]), Departure(1.0, by_another=False))
        assert len(departures) == limit
        assert (departures.last("w0", b"\4") is not None) == bool(limit)
