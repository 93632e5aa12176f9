"""What a round of losses shows, and when it shows nothing."""

from __future__ import annotations

import pytest

from loadtest.errors import LoadTestError
from loadtest.workloads.failover import Round, report


def lost(affected: int = 3, errors: int = 0, mismatches: int = 0) -> Round:
    return Round("w0", affected, errors, mismatches, [0.5] * affected)


VOID = lost(affected=0)


def test_a_round_that_took_no_stream_is_void_and_counts_for_nothing() -> None:
    told = report([lost(errors=1), lost(mismatches=2), lost(), lost(), VOID])
    assert told.summary["client_errors"] == 1
    assert told.summary["token_mismatches"] == 2
    assert told.summary["void_rounds"] == 1
    assert [row[2] for row in told.rows] == ["3", "3", "3", "3", "void"]


def test_an_error_is_shown_though_nobody_was_lost() -> None:
    told = report([lost(), lost(affected=0, errors=1)])
    assert (told.summary["client_errors"], told.summary["void_rounds"]) == (1, 0)


def test_too_many_void_rounds_are_no_pass() -> None:
    with pytest.raises(LoadTestError, match="in 2 of 4 rounds nobody lost a stream"):
        report([lost(), VOID, lost(), VOID])
    with pytest.raises(LoadTestError):
        report([VOID])
