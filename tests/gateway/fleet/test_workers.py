"""Who is live, and leases that come back on every path."""

from __future__ import annotations

import pytest

from gateway.config import BreakerConfig
from gateway.fleet.past import Past
from gateway.fleet.workers import Fleet, NameTaken, Worker, WorkerInfo, WorkerLoad
from tests.gateway.conftest import NoDoor

TINY = WorkerInfo("w0", "a", "tiny")


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.join(TINY, door=NoDoor())
    return fleet


def test_a_lease_counts_while_it_is_held_also_when_its_holder_fails(fleet: Fleet) -> None:
    worker = fleet.workers()[0]

    def fail_while_holding_it() -> None:
        with fleet.lease(worker):
            assert (worker.in_flight, fleet.in_flight) == (1, 1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_while_holding_it()
    assert (worker.in_flight, fleet.in_flight) == (0, 0)


def test_a_worker_that_comes_back_starts_at_zero(fleet: Fleet) -> None:
    old = fleet.workers()[0]
    with fleet.lease(old):
        fleet.leave("w0")
        fleet.join(WorkerInfo("w0", "b", "tiny"), door=NoDoor())
        new = fleet.workers()[0]
        assert (new.in_flight, fleet.in_flight) == (0, 1)
    assert (new.in_flight, fleet.in_flight) == (0, 0)


def test_a_name_stands_for_one_worker(fleet: Fleet) -> None:
    with pytest.raises(NameTaken):
        fleet.join(TINY, door=NoDoor())


def test_workers_of_every_task_that_stay_are_routed_to(fleet: Fleet) -> None:
    fleet.join(WorkerInfo("r0", "a", "tiny", task="rerank"), door=NoDoor())
    assert list(fleet.serving("tiny")) == ["w0", "r0"]
    fleet.report("w0", WorkerLoad(draining=True))
    assert list(fleet.serving("tiny")) == ["r0"]


def test_an_unknown_model_is_settled_once_every_worker_was_heard(fleet: Fleet) -> None:
    fleet.expect("a:1")
    fleet.expect("a:2")
    fleet.heard("a:1")
    assert not fleet.settled
    fleet.heard("a:2")
    assert fleet.settled


def test_a_model_stays_known_when_its_last_worker_left(fleet: Fleet) -> None:
    fleet.leave("w0")
    assert not fleet.ready
    assert fleet.models() == ()
    assert fleet.knows("tiny")
    assert not fleet.knows("huge")


class Waited:
    """A fleet on a clock that is set, which waits ten seconds for a lost worker."""

    def __init__(self) -> None:
        self.now = 0.0
        self.fleet = Fleet(Past(BreakerConfig(), 10.0), lambda: self.now)

    def waits(self) -> bool:
        """Whether what comes now is kept for a worker that may come."""
        return self.fleet.may_return("tiny") and not self.fleet.has_room("tiny", takes)


def takes(_: Worker) -> bool:
    return True


def test_a_model_is_waited_for_from_when_its_last_worker_begins_to_leave() -> None:
    waited = Waited()
    fleet = waited.fleet
    for name in ("w0", "w1"):
        fleet.join(WorkerInfo(name, "a", "tiny"), NoDoor())
    fleet.report("w0", WorkerLoad(draining=True))
    assert not waited.waits()
    fleet.leave("w1")
    assert waited.waits()
    waited.now = 9.0
    fleet.report("w0", WorkerLoad(draining=True, running_sequences=1))
    waited.now = 10.0
    assert not waited.waits()
    fleet.leave("w0")
    assert waited.waits()


def test_a_model_whose_worker_stays_after_all_is_served() -> None:
    waited = Waited()
    waited.fleet.join(TINY, NoDoor())
    waited.fleet.report("w0", WorkerLoad(draining=True))
    assert waited.waits()
    waited.fleet.report("w0", WorkerLoad())
    assert not waited.fleet.may_return("tiny")
    assert waited.fleet.has_room("tiny", takes)


def test_a_worker_of_any_task_is_waited_for() -> None:
    waited = Waited()
    waited.fleet.join(WorkerInfo("r0", "a", "tiny", task="rerank"), NoDoor())
    waited.fleet.leave("r0")
    assert waited.fleet.may_return("tiny")
