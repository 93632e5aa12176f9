"""Seeded faults through a real gateway process: each is named, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from loadtest.faults import fleet
from loadtest.faults.planted import MAKERS, cases
from loadtest.report import summary_line
from loadtest.workloads import doctor, doctor_fleet
from loadtest.workloads.doctor import Outcome

COUNT = 12


@pytest.fixture(scope="module")
def outcome() -> Iterator[Outcome]:
    planted = cases(COUNT, seed=11) + fleet.cases(8, seed=11)
    with doctor_fleet.serving() as target:
        yield asyncio.run(doctor.judge(target, planted))


@pytest.mark.xdist_group("doctor")
def test_every_kind_of_fault_is_named_right_and_nothing_else_is(outcome: Outcome) -> None:
    assert set(outcome.named) == {*MAKERS, *fleet.MAKERS}
    wrong = {kind: told.total() - outcome.right[kind] for kind, told in outcome.named.items()}
    # One of a kind may be wrong, and one of twenty over all.
    assert max(wrong.values()) <= 1, (wrong, outcome.wrong)
    assert outcome.named_right >= 0.95
    assert outcome.alarms.total() == 0, outcome.wrong
    line = summary_line(doctor.report(outcome))
    assert line.startswith("doctor: named_right=")
    assert "classes=20" in line


def test_cases_are_the_same_for_the_same_seed_and_differ_otherwise() -> None:
    first, again, other = (cases(2, seed) for seed in (1, 1, 2))
    assert first == again
    assert all(one not in first for one in other)


def test_a_reason_is_read_from_the_header() -> None:
    assert doctor.reason_of("hit=0/20, reason=uuid, at=messages[0]:3, age=2s") == "uuid"
    assert doctor.reason_of("") == ""
