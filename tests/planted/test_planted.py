"""The list of faults fits the sources, and the runner tells caught from missed."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.planted import run
from tests.planted.fault import Fault, LostFault
from tests.planted.faults import FAULTS
from tests.planted.run import BY_LIMIT, ROOT, Unfit, outcome

STOPS = ROOT / "worker" / "text" / "stops.py"
BRIEF = "tests/worker/text/test_stops.py::test_without_stops_text_passes_at_once"
QUICK = ("stop string leaks", "aging sign wrong")


def named(name: str) -> Fault:
    return next(one for one in FAULTS if one.name == name)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_replaces_what_is_there_by_what_can_be_read(fault: Fault) -> None:
    source = (ROOT / fault.file).read_text("utf-8")
    planted = fault.planted(source)
    assert planted != source
    if fault.file.endswith(".py"):
        assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(source))
    assert all((ROOT / test).exists() for test in fault.tests)
    assert fault.says.endswith(".")


def test_faults_have_names_of_their_own() -> None:
    assert len({one.name for one in FAULTS}) == len(FAULTS) >= 50


def test_a_fault_whose_text_is_gone_or_stands_twice_is_lost() -> None:
    fault = named("stop string leaks")
    source = STOPS.read_text("utf-8")
    with pytest.raises(LostFault, match=r"worker/text/stops\.py has its text 0 times"):
        fault.planted(source.replace(fault.old, ""))
    with pytest.raises(LostFault, match="2 times"):
        fault.planted(source + fault.old)


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_caught_in_a_copy_and_the_checkout_stays(name: str) -> None:
    fault = named(name)
    before = digests()
    caught_by = outcome(fault).caught_by
    assert caught_by is not None
    assert caught_by.split("::")[0].startswith(fault.tests[0])
    assert digests() == before


def test_what_changes_nothing_is_missed_and_what_hangs_is_caught_by_the_limit() -> None:
    fault = replace(named("stop string leaks"), tests=(BRIEF,))
    assert outcome(replace(fault, new=fault.old)).caught_by is None
    endless = replace(fault, old="        if not all(stops):\n", new="        while True:\n")
    endless = replace(endless, new=f"{endless.new}            pass\n{endless.old}")
    assert outcome(endless, limit_s=5).caught_by == BY_LIMIT


def test_tests_that_cannot_run_are_no_catch() -> None:
    unread = replace(named("stop string leaks"), new="                retrun begin\n")
    with pytest.raises(Unfit, match="stop string leaks: pytest ends with"):
        outcome(unread)
    with pytest.raises(Unfit, match="nothing planted: pytest ends with"):
        run.check_without(["tests/worker/gone.py"])


def digests() -> dict[Path, str]:
    """Every source of the worker in the checkout."""
    paths = (ROOT / "worker").rglob("*.py")
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
