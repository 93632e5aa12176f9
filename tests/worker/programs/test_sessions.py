"""Whose sessions are kept, for how long, and who gives way when there are too many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from worker.errors import SessionLost
from worker.programs.run import State
from worker.programs.sessions import KeptState, Sessions
from worker.programs.tape import Tape, Writer

# Nobody writes here: what is kept is only handed back.
IT = KeptState(State(Tape(cast(Writer, None))), ttl_s=60.0)


@dataclass
class Clock:
    """Seconds that a test moves."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def is_kept(sessions: Sessions, id_: str, namespace: bytes) -> bool:
    try:
        sessions.keep(id_, namespace, sessions.take(id_, namespace))
    except SessionLost:
        return False
    return True


def test_a_flood_of_one_namespace_ends_no_session_of_another() -> None:
    sessions = Sessions(Clock(), most=4)
    sessions.keep("own", b"acme", IT)
    for number in range(100):
        sessions.keep(str(number), b"flood", IT)
        assert len(sessions) <= 4
    assert is_kept(sessions, "own", b"acme")
    assert [n for n in range(100) if is_kept(sessions, str(n), b"flood")] == [97, 98, 99]


def test_an_id_of_another_namespace_is_as_unknown_as_one_that_never_was() -> None:
    sessions = Sessions(Clock())
    sessions.keep("s", b"acme", IT)
    for id_ in ("s", "never"):
        with pytest.raises(SessionLost) as told:
            sessions.take(id_, b"other")
        assert str(told.value) == str(SessionLost())
    assert sessions.take("s", b"acme") is IT


def test_a_session_lasts_as_long_as_it_was_given() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    sessions.keep("s", b"acme", IT)
    clock.now = 59.0
    assert is_kept(sessions, "s", b"acme")
    clock.now = 118.0
    assert is_kept(sessions, "s", b"acme")
    clock.now = 178.0
    assert not is_kept(sessions, "s", b"acme")
