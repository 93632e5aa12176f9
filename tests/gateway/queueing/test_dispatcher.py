from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from gateway.config import QueueConfig
from gateway.errors import GatewayError, Overloaded, QueueFull
from gateway.fleet.workers import Worker, WorkerInfo, WorkerLoad
from gateway.queueing.credit import has_credit
from gateway.queueing.dispatcher import Dispatcher, Ticket
from tests.gateway.conftest import NoDoor


@dataclass
class Slots:
    """So many requests may be placed."""

    free: int = 0
    placed: list[str] = field(default_factory=list)
    failed: list[GatewayError] = field(default_factory=list)


@dataclass
class Request:
    slots: Slots
    name: str
    narrow: Worker | None = None

    def place(self) -> bool:
        if not self.slots.free:
            return False
        self.slots.free -= 1
        self.slots.placed.append(self.name)
        return True

    def fail(self, error: GatewayError) -> None:
        self.slots.failed.append(error)


def ticket(slots: Slots, name: str = "", **settings: object) -> Ticket:
    made = Ticket("m", "tenant", b"bucket", Request(slots, name))
    for key, value in settings.items():
        setattr(made, key, value)
    return made


@pytest.fixture
def make() -> Callable[..., Dispatcher]:
    def dispatcher(**settings: float) -> Dispatcher:
        loop = asyncio.get_running_loop()
        config = QueueConfig(**settings)  # type: ignore[arg-type]
        return Dispatcher(config, loop.time, lambda _: True)

    return dispatcher


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the suite's timeout is the only clock
        await asyncio.sleep(0.005)


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_lone_request_is_on_its_way_before_enter_returns(
    make: Callable[..., Dispatcher],
) -> None:
    slots = Slots(free=1)
    make().enter(ticket(slots, "a"))
    assert slots.placed == ["a"]


async def test_what_waits_goes_when_credit_comes(make: Callable[..., Dispatcher]) -> None:
    dispatcher, slots = make(), Slots()
    for name in "abc":
        dispatcher.enter(ticket(slots, name))
    assert dispatcher.num_waiting == 3
    slots.free = 2
    dispatcher.nudge()
    dispatcher.nudge()
    await settle()
    assert slots.placed == ["a", "b"]
    assert dispatcher.waiting() == {("tenant", "m"): 1}


async def test_nobody_overtakes_one_that_waits(make: Callable[..., Dispatcher]) -> None:
    dispatcher, slots = make(), Slots()
    dispatcher.enter(ticket(slots, "first"))
    slots.free = 1
    dispatcher.enter(ticket(slots, "second"))
    await settle()
    assert slots.placed == ["first"]


async def test_one_without_credit_does_not_block_another_tenants_request(
    make: Callable[..., Dispatcher],
) -> None:
    dispatcher, none, some = make(), Slots(), Slots(free=1)
    dispatcher.enter(ticket(none, "stuck"))
    dispatcher.enter(ticket(some, "free", tenant_id="other"))
    await settle()
    assert some.placed == ["free"]
    assert dispatcher.num_waiting == 1


async def test_who_lost_its_worker_goes_first_and_is_not_refused(
    make: Callable[..., Dispatcher],
) -> None:
    dispatcher, slots = make(max_waiting=1), Slots()
    dispatcher.enter(ticket(slots, "waits"))
    dispatcher.enter(ticket(slots, "lost"), again=True)
    slots.free = 2
    dispatcher.nudge()
    await settle()
    assert slots.placed == ["lost", "waits"]


async def test_one_that_cannot_go_holds_up_neither_its_tenant_nor_one_that_lost_its_worker(
    make: Callable[..., Dispatcher],
) -> None:
    dispatcher, none, some = make(), Slots(), Slots()
    dispatcher.enter(ticket(none, "lost"), again=True)
    dispatcher.enter(ticket(none, "stuck"))
    dispatcher.enter(ticket(some, "free"))
    some.free = 1
    dispatcher.nudge()
    await settle()
    assert some.placed == ["free"]
    assert dispatcher.num_waiting == 2


async def test_without_room_nobody_is_looked_at() -> None:
    looks = 0

    class Counting(Request):
        def place(self) -> bool:
            nonlocal looks
            looks += 1
            return False

    loop = asyncio.get_running_loop()
    dispatcher = Dispatcher(QueueConfig(), loop.time, lambda _: False)
    for name in "abc":
        dispatcher.enter(Ticket("m", name, b"bucket", Counting(Slots(), name)))
    looks = 0
    dispatcher.nudge()
    await settle()
    assert looks == 0


async def test_without_room_not_even_those_that_lost_their_worker_are_looked_at() -> None:
    class Counting(Request):
        looks = 0

        def place(self) -> bool:
            Counting.looks += 1
            return False

    loop = asyncio.get_running_loop()
    dispatcher = Dispatcher(QueueConfig(), loop.time, lambda _: False)
    for name in "abc":
        dispatcher.enter(Ticket("m", name, b"bucket", Counting(Slots(), name)), again=True)
    before = Counting.looks
    dispatcher.nudge()
    await settle()
    assert Counting.looks == before
    assert dispatcher.num_waiting == 3


async def test_a_newcomer_does_not_overtake_one_that_lost_its_worker(
    make: Callable[..., Dispatcher],
) -> None:
    dispatcher, slots = make(), Slots()
    dispatcher.enter(ticket(slots, "lost"), again=True)
    slots.free = 1
    dispatcher.enter(ticket(slots, "newcomer"))
    assert slots.placed == []
    await settle()
    assert slots.placed == ["lost"]


async def test_those_that_lost_their_worker_go_in_the_order_in_which_they_came(
    make: Callable[..., Dispatcher],
) -> None:
    dispatcher, slots = make(), Slots()
    dispatcher.enter(ticket(slots, "first"), again=True)
    slots.free = 1
    dispatcher.enter(ticket(slots, "second"), again=True)
    await settle()
    assert slots.placed == ["first"]


async def test_one_that_lost_its_worker_holds_up_no_other_model(
    make: Callable[..., Dispatcher],
) -> None:
    dispatcher, none, some = make(), Slots(), Slots(free=1)
    dispatcher.enter(ticket(none, "lost"), again=True)
    dispatcher.enter(ticket(some, "other", model="other"))
    assert some.placed == ["other"]


async def test_a_tenants_limit_is_one_for_all_models(make: Callable[..., Dispatcher]) -> None:
    dispatcher, slots = make(), Slots()
    first = ticket(slots, max_waiting=2)
    dispatcher.enter(first)
    dispatcher.enter(ticket(slots, max_waiting=2, model="other"))
    with pytest.raises(QueueFull):
        dispatcher.enter(ticket(slots, max_waiting=2, model="third"))
    dispatcher.leave(first)
    dispatcher.enter(ticket(slots, max_waiting=2, model="third"))
    assert dispatcher.num_waiting == 2


async def test_what_waits_is_told_by_tenant_and_model(make: Callable[..., Dispatcher]) -> None:
    dispatcher, slots = make(), Slots()
    for model in ("m", "m", "other"):
        dispatcher.enter(ticket(slots, model=model))
    dispatcher.enter(ticket(slots, tenant_id="second", model="other"))
    dispatcher.enter(ticket(slots, model="other"), again=True)
    waiting = {("tenant", "m"): 2, ("tenant", "other"): 2, ("second", "other"): 1}
    assert dispatcher.waiting() == waiting


async def test_further_parts_of_a_request_use_up_no_limit(make: Callable[..., Dispatcher]) -> None:
    dispatcher, slots = make(), Slots()
    for _ in range(5):
        dispatcher.enter(ticket(slots))
    dispatcher.enter(ticket(slots, max_waiting=1))
    assert dispatcher.num_waiting == 6


@pytest.mark.parametrize("hold_s", [0.0, 5.0])
async def test_one_that_may_not_wait_is_refused_only_where_it_would_have_to(
    make: Callable[..., Dispatcher], hold_s: float
) -> None:
    dispatcher, slots = make(hold_s=hold_s), Slots(free=1)
    dispatcher.enter(ticket(slots, "a", max_waiting=0))
    assert slots.placed == ["a"]
    with pytest.raises(QueueFull):
        dispatcher.enter(ticket(slots, "b", max_waiting=0))
    assert dispatcher.num_waiting == 0
    slots.free = 1
    await settle()
    assert slots.placed == ["a"]


async def test_one_that_may_not_wait_overtakes_nobody_that_does(
    make: Callable[..., Dispatcher],
) -> None:
    dispatcher, slots, own = make(), Slots(), Slots(free=1)
    dispatcher.enter(ticket(slots, "waits"))
    slots.free = 1
    with pytest.raises(QueueFull):
        dispatcher.enter(ticket(slots, "new", tenant_id="other", max_waiting=0))
    assert slots.placed == ["waits"]
    dispatcher.enter(ticket(slots, "waits"))
    dispatcher.enter(ticket(own, "elsewhere", tenant_id="other", max_waiting=0))
    assert own.placed == ["elsewhere"]


async def test_queues_have_limits_of_the_tenant_and_of_all(
    make: Callable[..., Dispatcher],
) -> None:
    dispatcher, slots = make(max_waiting=3), Slots()
    dispatcher.enter(ticket(slots, max_waiting=1))
    with pytest.raises(QueueFull):
        dispatcher.enter(ticket(slots, max_waiting=1))
    dispatcher.enter(ticket(slots, tenant_id="b"))
    dispatcher.enter(ticket(slots, tenant_id="c"))
    with pytest.raises(Overloaded):
        dispatcher.enter(ticket(slots, tenant_id="d"))
    assert dispatcher.num_waiting == 3


async def test_one_that_waits_too_long_is_failed_once(make: Callable[..., Dispatcher]) -> None:
    dispatcher, slots = make(max_wait_s=0.01), Slots()
    dispatcher.enter(ticket(slots))
    await until(lambda: bool(slots.failed))
    slots.free = 5
    dispatcher.nudge()
    await settle()
    assert [type(error) for error in slots.failed] == [Overloaded]
    assert slots.placed == []
    assert dispatcher.num_waiting == 0


async def test_one_that_left_is_neither_placed_nor_failed(
    make: Callable[..., Dispatcher],
) -> None:
    dispatcher, slots = make(max_wait_s=0.01), Slots()
    one = ticket(slots)
    dispatcher.enter(one)
    dispatcher.leave(one)
    dispatcher.leave(one)
    slots.free = 1
    dispatcher.nudge()
    await asyncio.sleep(0.03)
    assert (slots.placed, slots.failed, dispatcher.num_waiting) == ([], [], 0)


async def test_a_hold_gathers_and_then_lets_all_of_a_prefix_go(
    make: Callable[..., Dispatcher],
) -> None:
    dispatcher, slots = make(hold_s=0.05), Slots(free=10)
    for name in "abc":
        dispatcher.enter(ticket(slots, name))
        await asyncio.sleep(0.005)
    assert slots.placed == []
    await until(lambda: len(slots.placed) == 3)
    assert slots.placed == ["a", "b", "c"]


IDLE = WorkerLoad()


def worker(runs: int, load: WorkerLoad = IDLE, waits: int = 99) -> Worker:
    info = WorkerInfo("w", "i", "m", max_running_sequences=runs, max_waiting_sequences=waits)
    return Worker(info, NoDoor(), load=load)


def test_credit_is_what_it_runs_and_a_part_ahead() -> None:
    busy = worker(8)
    busy.num_sequences = 9
    assert has_credit(busy, 0.25)
    busy.num_sequences = 10
    assert not has_credit(busy, 0.25)


def test_others_requests_take_credit_too() -> None:
    shared = worker(8, WorkerLoad(running_sequences=8, waiting_sequences=3))
    shared.num_sequences = 1
    assert not has_credit(shared, 0.25)
    shared.num_sequences = 2
    assert has_credit(worker(8, WorkerLoad(running_sequences=5)), 0.25)


def test_one_whose_queue_is_short_is_sent_no_more_than_it_takes() -> None:
    busy = worker(4, waits=0)
    busy.num_sequences = 3
    assert has_credit(busy, 0.25)
    busy.num_sequences = 4
    assert not has_credit(busy, 0.25)


def test_choices_count_and_an_idle_worker_takes_any_number_of_them() -> None:
    busy = worker(8)
    busy.num_sequences = 6
    assert has_credit(busy, 0.25, 4)
    assert not has_credit(busy, 0.25, 5)
    assert has_credit(worker(8), 0.25, 50)


def test_a_worker_that_says_nothing_takes_any_number() -> None:
    silent = worker(0)
    silent.num_sequences = 1000
    assert has_credit(silent, 0.0)
