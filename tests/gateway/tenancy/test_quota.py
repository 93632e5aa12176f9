"""A request is counted before it waits and settled when it ends, once and by what it used."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from gateway.errors import RateLimited
from gateway.request import (
    Ask,
    ChatPrompt,
    Decoding,
    ProgramPrompt,
    Prompt,
    Sampling,
    Stopping,
    TextPrompt,
    Usage,
)
from gateway.store.interface import Settlement, Standing, Take
from gateway.store.memory import MemoryStore
from gateway.tenancy.estimate import estimate
from gateway.tenancy.quota import Quotas
from gateway.tenancy.refusal import duration
from gateway.tenancy.tenants import Tenant
from gateway.tenancy.usage import UsageLedger
from gateway.tenant_config import QuotaConfig, TenantConfig, TenantQuota
from tests.gateway.tenancy.conftest import Seen


def tenant(**quota: int) -> Tenant:
    return Tenant.of(TenantConfig("acme", quota=TenantQuota(**quota)))


PROMPT = TextPrompt("x" * 400)


def ask(prompt: Prompt = PROMPT, max_tokens: int | None = 100, n: int = 1) -> Ask:
    decoding = Decoding(Sampling(), Stopping(max_tokens=max_tokens), n=n)
    return Ask("trace", "acme", b"acme", prompt, decoding)


@dataclass
class Spy:
    """A memory store that keeps what it is asked, and can be slow."""

    now: float = 1000.0
    takes: list[Take] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    renewals: list[Mapping[str, Sequence[str]]] = field(default_factory=list)
    slow: asyncio.Event | None = None

    def __post_init__(self) -> None:
        self.memory = MemoryStore(15.0, lambda: self.now)

    async def take(self, take: Take) -> Standing:
        self.takes.append(take)
        standing = await self.memory.take(take)
        if self.slow is not None:
            await self.slow.wait()
        return standing

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        self.settlements += settlements
        await self.memory.settle(settlements)

    async def renew(self, held: Mapping[str, Sequence[str]]) -> None:
        self.renewals.append(held)
        await self.memory.renew(held)


@dataclass
class Desk:
    """Quotas over a spy."""

    spy: Spy
    quotas: Quotas
    ledger: UsageLedger

    async def tokens_left(self) -> int:
        """Of a tenant with tokens."""
        standing = await self.spy.memory.take(
            Take("look", "acme", tenant(tokens_per_minute=1000).limits, 0)
        )
        assert standing.tokens is not None
        return standing.tokens.remaining


@pytest.fixture
def desk(seen: Seen) -> Desk:
    spy = Spy()
    ledger = UsageLedger(spy.memory, seen.telemetry, lambda: 0.0, lambda: "batch")
    config = QuotaConfig(default_output_tokens=200, cached_token_share=0.5, lease_s=1.0)
    quotas = Quotas(spy, ledger, seen.telemetry, config, "gw", lambda: spy.now)
    return Desk(spy, quotas, ledger)


async def test_a_tenant_without_limits_costs_no_call(desk: Desk) -> None:
    with await desk.quotas.reserve(tenant(max_queued=3), [ask()]) as reservation:
        assert reservation.headers == ()
        reservation.settle(Usage(10, 0, 5))
    await desk.quotas.close()
    assert (desk.spy.takes, desk.spy.settlements) == ([], [])
    await desk.ledger.flush()
    (row,) = await desk.spy.memory.usage("acme", ["1970-01-01"])
    assert (row.counts.requests, row.counts.prompt_tokens) == (1, 10)


async def test_a_tenant_with_limits_costs_one_call_before_and_one_behind(desk: Desk) -> None:
    with await desk.quotas.reserve(tenant(tokens_per_minute=1000), [ask()]) as reservation:
        assert [take.tokens for take in desk.spy.takes] == [200]
        reservation.settle(Usage(90, 0, 20))
        assert desk.spy.settlements == []  # nobody waits for it
    await desk.quotas.close()
    assert [settlement.tokens for settlement in desk.spy.settlements] == [110]
    assert await desk.tokens_left() == 890


async def test_a_reservation_is_settled_once(desk: Desk) -> None:
    with await desk.quotas.reserve(tenant(tokens_per_minute=1000), [ask()]) as reservation:
        for completion_tokens in (20, 100, 0):
            reservation.settle(Usage(80, 0, completion_tokens))
    await desk.quotas.close()
    assert len(desk.spy.settlements) == 1
    assert await desk.tokens_left() == 900


async def test_whoever_never_reached_a_worker_pays_no_token_but_made_a_request(desk: Desk) -> None:
    both = tenant(tokens_per_minute=1000, requests_per_minute=1)
    with await desk.quotas.reserve(both, [ask()]):
        pass
    await desk.quotas.close()
    with pytest.raises(RateLimited, match="1 requests a minute"):
        await desk.quotas.reserve(both, [ask()])
    assert await desk.tokens_left() == 1000
    await desk.ledger.flush()
    assert await desk.spy.memory.usage("acme", ["1970-01-01"]) == []


async def test_cached_tokens_may_be_cheaper(desk: Desk) -> None:
    with await desk.quotas.reserve(tenant(tokens_per_minute=1000), [ask()]) as reservation:
        reservation.settle(Usage(100, 81, 10))
    await desk.quotas.close()
    assert desk.spy.settlements[0].tokens == 70  # 19 + 81 / 2 + 10, rounded up


async def test_success_and_refusal_carry_openais_headers(desk: Desk, seen: Seen) -> None:
    limited = tenant(tokens_per_minute=300, requests_per_minute=10)
    reservation = await desk.quotas.reserve(limited, [ask()])
    assert dict(reservation.headers) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "6s",
        "x-ratelimit-limit-tokens": "300",
        "x-ratelimit-remaining-tokens": "100",
        "x-ratelimit-reset-tokens": "40s",
    }
    with pytest.raises(RateLimited, match=r"try again in 20s") as caught:
        await desk.quotas.reserve(limited, [ask()])
    assert caught.value.retry_after_s == pytest.approx(20)
    assert caught.value.param == "tokens_per_minute"
    headers = dict(caught.value.headers)
    assert headers["x-ratelimit-remaining-tokens"] == "100"
    assert headers["retry-after-ms"] == "20000"
    refusals = "quota_refusals_total"
    assert seen.metric(refusals, tenant="acme", limit="tokens_per_minute") == 1


async def test_a_request_larger_than_the_whole_limit_is_told_never_to_come_back(
    desk: Desk,
) -> None:
    with pytest.raises(
        RateLimited, match=r"about 1100 tokens.*tokens_per_minute is 1000, so waiting"
    ) as caught:
        await desk.quotas.reserve(tenant(tokens_per_minute=1000), [ask(max_tokens=1000)])
    assert caught.value.retry_after_s is None
    assert ("x-should-retry", "false") in caught.value.headers
    assert desk.spy.takes == []


async def test_a_program_larger_than_the_whole_limit_is_told_what_of_its_steps_to_change(
    desk: Desk,
) -> None:
    program = ProgramPrompt(b"[]", prompt_tokens=700, tokens=800)
    with pytest.raises(RateLimited, match=r"about 1500 .* 700 of prompt.* 800 of") as caught:
        await desk.quotas.reserve(tenant(tokens_per_minute=1000), [ask(program)])
    assert caught.value.param == "tokens_per_minute"
    assert "Give its gens a smaller max_tokens" in caught.value.detail
    assert caught.value.retry_after_s is None
    assert ("x-should-retry", "false") in caught.value.headers


async def test_a_guess_of_the_output_never_makes_a_request_too_large(desk: Desk) -> None:
    small = tenant(tokens_per_minute=250)
    await desk.quotas.reserve(small, [ask(max_tokens=None)])
    assert desk.spy.takes[0].tokens == 250
    with pytest.raises(RateLimited, match="too large"):
        await desk.quotas.reserve(small, [ask(TextPrompt("x" * 1004), max_tokens=None)])


async def test_no_more_run_at_once_than_may_and_their_leases_are_renewed(desk: Desk) -> None:
    two = tenant(concurrency=2)
    first, _ = [await desk.quotas.reserve(two, [ask()]) for _ in range(2)]
    with pytest.raises(RateLimited, match="2 requests at a time") as caught:
        await desk.quotas.reserve(two, [ask()])
    assert caught.value.retry_after_s == 1.0
    task = asyncio.create_task(desk.quotas.run())
    async with asyncio.timeout(10):
        while len(desk.spy.renewals) < 1:  # noqa: ASYNC110 - the loop's own pace
            await asyncio.sleep(0.01)
        assert sorted(desk.spy.renewals[0]["acme"]) == ["gw-0", "gw-1"]
        first.settle(Usage(1, 0, 1))
        while len(desk.spy.renewals) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert desk.spy.renewals[-1] == {"acme": ("gw-1",)}
    task.cancel()
    await desk.quotas.reserve(two, [ask()])


async def test_a_client_that_leaves_while_it_is_counted_holds_nothing(desk: Desk) -> None:
    desk.spy.slow = asyncio.Event()
    limited = tenant(tokens_per_minute=1000, concurrency=1)
    task = asyncio.create_task(desk.quotas.reserve(limited, [ask()]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(desk.spy.takes) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await desk.quotas.close()
    desk.spy.slow = None
    assert await desk.tokens_left() == 1000
    await desk.quotas.reserve(limited, [ask()])


async def test_ids_are_the_gateways_own_and_never_come_twice(desk: Desk) -> None:
    for _ in range(3):
        await desk.quotas.reserve(tenant(tokens_per_minute=1000), [ask()])
    assert [take.id for take in desk.spy.takes] == ["gw-0", "gw-1", "gw-2"]


def test_an_estimate_counts_all_prompts_and_all_choices() -> None:
    chat = ChatPrompt(b"m" * 40, b"t" * 40)
    whole = estimate([ask(chat, 10, n=3), ask(TextPrompt("ü"), None)], 200)
    assert (whole.prompt_tokens, whole.output_tokens, whole.asked) == (21, 230, False)
    assert estimate([ask(max_tokens=5)], 200).asked


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.02, "20ms"), (1, "1s"), (7.66, "7.66s"), (360, "6m0s"), (61.5, "1m1.5s")],
)
def test_durations_are_written_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
