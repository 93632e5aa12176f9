"""Memory and Redis count alike: whatever is taken, settled and repeated, in whatever order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.store.interface import Limit, Limits, QuotaStore, Settlement, Standing, Take
from gateway.store.memory import MemoryStore
from gateway.store.redis import Retention
from tests.gateway.store.conftest import connected
from tests.gateway.store.redis_server import RedisServer

MEMBERS = ("memory", "redis")
# So slow that nothing leaks out while a test runs.
SLOW = Limits(requests=100, tokens=1000, concurrency=50)


class Clock:
    """Time that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=MEMBERS)
async def store(
    request: pytest.FixtureRequest, redis_server: RedisServer
) -> AsyncIterator[QuotaStore]:
    if request.param == "memory":
        yield MemoryStore(lease_s=15.0, clock=Clock())
        return
    async with connected(redis_server) as redis:
        yield redis


class TakeOne(Protocol):
    async def __call__(self, id_: str, tokens: int = 0, limits: Limits = SLOW) -> Standing: ...


@pytest.fixture
def take(store: QuotaStore) -> TakeOne:
    async def take_one(id_: str, tokens: int = 0, limits: Limits = SLOW) -> Standing:
        return await store.take(Take(id_, "acme", limits, tokens))

    return take_one


def remaining_tokens(standing: Standing) -> int:
    assert standing.tokens is not None
    return standing.tokens.remaining


async def test_what_is_taken_is_counted_until_it_is_settled(
    store: QuotaStore, take: TakeOne
) -> None:
    standing = await take("a", 600)
    assert standing.denied_by is None
    assert standing.requests is not None
    assert standing.requests.remaining == 99
    assert remaining_tokens(standing) == 400
    assert standing.tokens is not None
    assert standing.tokens.reset_s == pytest.approx(36, abs=0.5)
    await store.settle([Settlement("a", "acme", SLOW, 100)])
    assert remaining_tokens(await take("b", 0)) == pytest.approx(900, abs=5)


async def test_what_is_denied_is_not_counted(take: TakeOne) -> None:
    assert (await take("a", 900)).denied_by is None
    denied = await take("b", 200)
    assert denied.denied_by is Limit.TOKENS
    assert denied.retry_after_s == pytest.approx(6, abs=0.5)
    standing = await take("c", 50)
    assert standing.requests is not None
    assert (standing.requests.remaining, remaining_tokens(standing)) == (98, 50)


async def test_requests_are_limited_as_well(take: TakeOne) -> None:
    limits = Limits(requests=2)
    assert (await take("a", limits=limits)).denied_by is None
    assert (await take("b", limits=limits)).denied_by is None
    denied = await take("c", limits=limits)
    assert denied.denied_by is Limit.REQUESTS
    assert denied.retry_after_s == pytest.approx(30, abs=0.5)
    assert denied.tokens is None


async def test_of_two_limits_the_one_that_takes_longer_is_told(take: TakeOne) -> None:
    limits = Limits(requests=1, tokens=100)
    await take("a", 90, limits)
    denied = await take("b", 20, limits)
    assert denied.denied_by is Limit.REQUESTS
    assert denied.retry_after_s == pytest.approx(60, abs=0.5)


async def test_no_more_run_at_once_than_may(store: QuotaStore, take: TakeOne) -> None:
    limits = Limits(concurrency=2)
    for id_ in ("a", "b"):
        assert (await take(id_, limits=limits)).denied_by is None
    assert (await take("c", limits=limits)).denied_by is Limit.CONCURRENCY
    await store.settle([Settlement("a", "acme", limits, 0)])
    assert (await take("d", limits=limits)).denied_by is None


async def test_asking_again_counts_once(store: QuotaStore, take: TakeOne) -> None:
    limits = Limits(requests=10, tokens=1000, concurrency=1)
    first = await take("a", 500, limits)
    again = await take("a", 500, limits)
    assert again.denied_by is None
    assert remaining_tokens(again) == pytest.approx(remaining_tokens(first), abs=5)
    for _ in range(3):
        await store.settle([Settlement("a", "acme", limits, 100)] * 2)
    assert remaining_tokens(await take("b", 0, limits)) == pytest.approx(900, abs=5)


async def test_more_than_was_taken_is_charged_too(store: QuotaStore, take: TakeOne) -> None:
    await take("a", 100)
    await store.settle([Settlement("a", "acme", SLOW, 2000)])
    denied = await take("b", 1)
    assert denied.denied_by is Limit.TOKENS
    assert denied.retry_after_s == pytest.approx(60, abs=0.5)


async def test_giving_back_never_makes_more_than_the_whole(
    store: QuotaStore, take: TakeOne
) -> None:
    fast = Limits(tokens=10**9)
    await take("a", 10**6, fast)
    await asyncio.sleep(0.07 if not isinstance(store, MemoryStore) else 0)
    await store.settle([Settlement("a", "acme", fast, 0)])
    assert remaining_tokens(await take("b", 0, fast)) == 10**9


async def test_tenants_do_not_share(store: QuotaStore, take: TakeOne) -> None:
    await take("a", 1000)
    other = await store.take(Take("b", "globex", SLOW, 1000))
    assert other.denied_by is None


async def test_a_limit_that_is_lowered_counts_what_was_taken_before(take: TakeOne) -> None:
    await take("a", 800)
    assert (await take("b", 1, Limits(tokens=500))).denied_by is Limit.TOKENS


Steps = list[tuple[str, int, int]]


@st.composite
def stories(draw: st.DrawFn) -> Steps:
    """Takes, settlements and repetitions of some ids in any order: name, tokens taken and used."""
    amounts = draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=12))
    steps: Steps = []
    for number, (taken, used) in enumerate(amounts):
        copies = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        steps += [(f"take {number}", taken, used)] * copies[0]
        steps += [(f"settle {number}", taken, used)] * copies[1]
    shuffled = draw(st.permutations(steps))
    # A settlement before its take finds nothing, and the take stays: settle all once more.
    ending = [(f"settle {number}", *amount) for number, amount in enumerate(amounts)]
    return [*shuffled, *ending]


@pytest.mark.parametrize("member", MEMBERS)
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(story=stories())
def test_in_any_order_tokens_are_conserved(
    shared_redis: RedisServer, member: str, story: Steps
) -> None:
    limits = Limits(tokens=60_000, concurrency=100)

    async def play(store: QuotaStore) -> tuple[int, int]:
        """Tokens that are charged in the end, and what they should be."""
        live: dict[str, tuple[int, int]] = {}
        charged = 0
        for word, taken, used in story:
            kind, id_ = word.split()
            if kind == "take":
                standing = await store.take(Take(id_, "acme", limits, taken))
                assert standing.denied_by is None
                live[id_] = taken, used
            else:
                await store.settle([Settlement(id_, "acme", limits, used)])
                if id_ in live:
                    charged += live.pop(id_)[1]
        assert not live
        standing = await store.take(Take("last", "acme", limits, 0))
        return 60_000 - remaining_tokens(standing), charged

    async def check() -> None:
        if member == "memory":
            found, expected = await play(MemoryStore(15.0, Clock()))
            assert found == expected
            return
        shared_redis.command("FLUSHALL")
        async with connected(shared_redis) as redis:
            began = asyncio.get_running_loop().time()
            found, expected = await play(redis)
            leaked = (asyncio.get_running_loop().time() - began) * 1000 + 1
            assert expected - leaked <= found <= expected
        assert shared_redis.command("ZCARD", "test:running:acme") == ":1"
        # The last one's lease and record, and the bucket if anything is in it.
        assert shared_redis.command("DBSIZE") in (":2", ":3")

    asyncio.run(check())


def test_memory_leaks_as_time_passes() -> None:
    clock = Clock()
    store = MemoryStore(15.0, clock)

    async def play() -> None:
        await store.take(Take("a", "acme", SLOW, 1000))
        denied = await store.take(Take("b", "acme", SLOW, 500))
        assert denied.retry_after_s == pytest.approx(30)
        clock.now += 29.9
        assert (await store.take(Take("b", "acme", SLOW, 500))).denied_by is Limit.TOKENS
        clock.now += 0.2
        assert (await store.take(Take("b", "acme", SLOW, 500))).denied_by is None

    asyncio.run(play())


async def test_a_lease_that_nobody_renews_ends() -> None:
    clock = Clock()
    store = MemoryStore(15.0, clock)
    limits = Limits(concurrency=1)
    await store.take(Take("a", "acme", limits, 0))
    clock.now += 14
    await store.renew({"acme": ["a"]})
    clock.now += 14
    assert (await store.take(Take("b", "acme", limits, 0))).denied_by is Limit.CONCURRENCY
    clock.now += 2
    assert (await store.take(Take("b", "acme", limits, 0))).denied_by is None


async def test_a_lease_in_redis_that_nobody_renews_ends(redis_server: RedisServer) -> None:
    limits = Limits(concurrency=1)
    async with connected(redis_server, Retention(0.3, 60, 2)) as store:
        await store.take(Take("a", "acme", limits, 0))
        for _ in range(3):
            await asyncio.sleep(0.2)
            await store.renew({"acme": ["a"]})
        assert (await store.take(Take("b", "acme", limits, 0))).denied_by is Limit.CONCURRENCY
        await asyncio.sleep(0.35)
        assert (await store.take(Take("b", "acme", limits, 0))).denied_by is None
    assert redis_server.command("TTL", "test:taken:a") in (":59", ":60")


async def test_memory_forgets_who_was_not_seen_for_longest() -> None:
    store = MemoryStore(15.0, Clock(), max_entries=10)
    for number in range(100):
        await store.take(Take(f"id{number}", f"tenant{number}", SLOW, 1000))
        await store.take(Take(f"more{number}", "regular", Limits(tokens=10**6), 1000))
    regular = await store.take(Take("last", "regular", Limits(tokens=10**6), 0))
    assert remaining_tokens(regular) == 10**6 - 100_000
    assert len(store._tenants) == len(store._records) == 10


def test_a_redis_that_is_missing_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AssertionError, match="redis-server is missing"):
        RedisServer(tmp_path)
