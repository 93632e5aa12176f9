"""Which worker, and the reason given."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import NoWorker
from gateway.fleet.workers import Fleet, WorkerInfo, WorkerLoad
from gateway.routing.prefix import PrefixKey
from gateway.routing.ring import LoadBound
from gateway.routing.router import Router, RouteReason
from tests.gateway.conftest import NoDoor

KEY = PrefixKey(b"key")
KEYS = [PrefixKey(bytes([number])) for number in range(100)]


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    for number in range(4):
        fleet.join(WorkerInfo(f"w{number}", "a", "tiny"), door=NoDoor())
    return fleet


@pytest.fixture
async def router(fleet: Fleet) -> Router:
    router = Router(fleet, LoadBound(floor=2), vnodes=160)
    await router.rebuild()
    return router


async def test_a_key_keeps_its_worker(router: Router) -> None:
    routes = [router.route("tiny", KEY) for _ in range(3)]
    assert len({route.worker.name for route in routes}) == 1
    assert {route.reason for route in routes} == {RouteReason.PREFERRED}


async def test_an_overloaded_worker_is_passed_over_and_taken_again(
    fleet: Fleet, router: Router
) -> None:
    own = router.route("tiny", KEY).worker
    with fleet.lease(own), fleet.lease(own), fleet.lease(own):
        other = router.route("tiny", KEY)
        assert other.worker is not own
        assert other.reason is RouteReason.BOUNDED_LOAD
    assert router.route("tiny", KEY).worker is own


async def test_a_worker_that_failed_the_request_is_avoided(router: Router) -> None:
    own = router.route("tiny", KEY).worker.name
    retry = router.route("tiny", KEY, {own})
    assert retry.worker.name != own
    assert retry.reason is RouteReason.RETRY


async def test_a_draining_worker_gets_nothing_new(fleet: Fleet, router: Router) -> None:
    own = router.route("tiny", KEY).worker.name
    fleet.report(own, WorkerLoad(draining=True))
    assert router.route("tiny", KEY).worker.name != own


async def test_without_a_worker_there_is_an_error(router: Router) -> None:
    with pytest.raises(NoWorker):
        router.route("huge", KEY)
    with pytest.raises(NoWorker):
        router.route("tiny", KEY, {"w0", "w1", "w2", "w3"})


def test_before_the_ring_stands_the_least_loaded_is_taken_and_ties_spread(fleet: Fleet) -> None:
    router = Router(fleet, LoadBound(), vnodes=160)
    routes = [router.route("tiny", key) for key in KEYS]
    assert {route.reason for route in routes} == {RouteReason.LEAST_LOADED}
    assert len({route.worker.name for route in routes}) == 4


async def test_a_gone_worker_is_skipped_before_the_ring_follows(
    fleet: Fleet, router: Router
) -> None:
    before = {key: router.route("tiny", key).worker.name for key in KEYS}
    fleet.leave("w0")
    skipped = {key: router.route("tiny", key).worker.name for key in KEYS}
    await router.rebuild()
    rebuilt = {key: router.route("tiny", key).worker.name for key in KEYS}
    assert skipped == rebuilt
    assert all(before[key] in ("w0", rebuilt[key]) for key in KEYS)


async def test_the_rings_follow_the_fleet_by_themselves(fleet: Fleet) -> None:
    router = Router(fleet, LoadBound(), vnodes=160)
    follower = asyncio.create_task(router.follow_fleet())
    async with asyncio.timeout(20):
        while router.route("tiny", KEY).reason is not RouteReason.PREFERRED:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    follower.cancel()


async def test_models_have_rings_of_their_own(fleet: Fleet, router: Router) -> None:
    fleet.join(WorkerInfo("x0", "a", "other"), door=NoDoor())
    await router.rebuild()
    assert {router.route("other", key).worker.name for key in KEYS} == {"x0"}
