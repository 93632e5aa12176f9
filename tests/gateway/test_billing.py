"""What a request costs its tenant, however it ends; and what limits do to requests."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime

import httpx

from gateway.config import QueueConfig, RetryConfig
from gateway.store.interface import Counts
from gateway.tenancy.keys import digest_of
from gateway.tenant_config import TenantConfig, TenantQuota
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fake_worker import FakeWorker, Line, endless, failing, silence, words
from tests.gateway.storyteller import story

CHAT = "/v1/chat/completions"
KEY = {"authorization": "Bearer pnd-test"}
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 10}
# What the gateway takes the messages for: the bytes of their JSON, four to a token.
ESTIMATE = -(-len(json.dumps(BODY["messages"], separators=(",", ":"))) // 4)


def acme(debug: bool = False, **quota: int) -> TenantConfig:
    return TenantConfig("acme", (digest_of("pnd-test"),), quota=TenantQuota(**quota), debug=debug)


async def serving(
    start_worker: StartWorker, serve: Serve, *scripts: object, **settings: object
) -> tuple[Live, list[FakeWorker]]:
    workers = [
        await start_worker(name=f"w{i}", script=script)  # type: ignore[arg-type]
        for i, script in enumerate(scripts)
    ]
    chosen = {"tenants": (acme(),), **settings}
    live = await serve(*workers, **chosen)  # type: ignore[arg-type]
    await live.until_linked(*(worker.name for worker in workers))
    return live, workers


async def used(live: Live) -> Counts:
    """What the tenant's account says, once all is written."""
    await live.gateway.tenancy.ledger.flush()
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    rows = await live.gateway.tenancy.directory.usage("acme", [day])
    return sum((row.counts for row in rows), Counts())


async def ask(live: Live, **changes: object) -> httpx.Response:
    return await live.http.post(CHAT, json={**BODY, **changes}, headers=KEY)


async def test_a_finished_request_costs_what_its_worker_counted(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, _ = await serving(start_worker, serve, words)
    assert (await ask(live)).status_code == 200
    assert await used(live) == Counts(1, 7, 3, 3)


async def test_a_continued_request_is_billed_once(start_worker: StartWorker, serve: Serve) -> None:
    live, workers = await serving(start_worker, serve, story(0.01), story(0.01))
    request = asyncio.create_task(ask(live, max_tokens=40, n=2))
    await live.until(lambda: any(worker.submits for worker in workers))
    await asyncio.sleep(0.1)
    teller = next(worker for worker in workers if worker.submits)
    await teller.stop()
    answer = (await request).json()
    assert live.metric("continuations_total") == 1
    counts = await used(live)
    assert (counts.requests, counts.prompt_tokens) == (1, 7)
    assert counts.completion_tokens == answer["usage"]["completion_tokens"]


async def test_who_hangs_up_pays_the_prompt_and_what_was_made(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, _ = await serving(start_worker, serve, endless)
    body = {**BODY, "stream": True, "max_tokens": 1000}
    async with live.http.stream("POST", "/v1/chat/completions", json=body, headers=KEY) as response:
        pieces = response.aiter_text()
        text = ""
        while text.count("and") < 5:
            text += await anext(pieces)
    await live.until(lambda: live.gateway.fleet.in_flight == 0)
    counts = await used(live)
    assert (counts.requests, counts.prompt_tokens) == (1, ESTIMATE)
    assert counts.completion_tokens >= 5
    assert counts.completion_tokens == live.metric("completion_tokens_total")


async def test_our_own_failure_without_output_costs_nothing(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, _ = await serving(start_worker, serve, failing(pb.INTERNAL))
    assert (await ask(live)).status_code == 500
    assert await used(live) == Counts()


async def test_a_refused_request_costs_nothing(start_worker: StartWorker, serve: Serve) -> None:
    live, _ = await serving(start_worker, serve, words)
    assert (await ask(live, model="other")).status_code == 404
    assert (await ask(live, temperature=9)).status_code == 400
    assert await used(live) == Counts()


async def test_what_a_worker_refuses_costs_nothing(start_worker: StartWorker, serve: Serve) -> None:
    refuses = failing(pb.CONTEXT_LENGTH_EXCEEDED, "too long", "messages")
    live, _ = await serving(start_worker, serve, refuses)
    assert (await ask(live)).status_code == 400
    assert await used(live) == Counts()


async def test_who_hangs_up_while_a_stream_waits_to_go_on_pays_what_was_made(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, [worker] = await serving(start_worker, serve, endless)
    task = asyncio.create_task(ask(live, max_tokens=1000))
    await live.until(lambda: live.metric("ttft_seconds_count") == 1)
    worker.script = silence
    worker.hand_back()
    await worker.stop()
    await live.until(lambda: live.metric("waiting_requests") == 1)
    task.cancel()
    await live.until(lambda: live.metric("requests_total", status="499") == 1)
    counts = await used(live)
    assert (counts.requests, counts.prompt_tokens) == (1, ESTIMATE)
    assert counts.completion_tokens > 0


async def test_several_prompts_are_one_request_of_the_tenants_queue(
    start_worker: StartWorker, serve: Serve
) -> None:
    tenants = (acme(max_queued=2),)
    live, [_] = await serving(start_worker, serve, words, tenants=tenants)
    worker = live.gateway.fleet.workers()[0]
    worker.info = replace(worker.info, max_running_sequences=1)
    body = {"model": "tiny", "prompt": [str(number) for number in range(8)], "max_tokens": 3}
    answer = await live.http.post("/v1/completions", json=body, headers=KEY)
    assert answer.status_code == 200
    assert len(answer.json()["choices"]) == 8


async def test_a_failed_stream_costs_what_its_client_has(
    start_worker: StartWorker, serve: Serve
) -> None:
    async def half(submit: pb.Submit, line: Line) -> None:
        line.text(submit.request_id, "a")
        line.text(submit.request_id, "b")
        line.fail(submit.request_id, pb.INTERNAL)

    live, _ = await serving(start_worker, serve, half)
    assert "internal_error" in (await ask(live, stream=True)).text
    assert await used(live) == Counts(1, ESTIMATE, 0, 2)


async def test_too_many_requests_are_told_when_to_come_again(
    start_worker: StartWorker, serve: Serve
) -> None:
    tenants = (acme(requests_per_minute=2),)
    live, _ = await serving(start_worker, serve, words, tenants=tenants)
    answers = [await ask(live) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["x-ratelimit-limit-requests"] == "2"
    assert answers[1].headers["x-ratelimit-remaining-requests"] == "0"
    assert answers[2].json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(answers[2].headers["retry-after"]) <= 60
    assert live.metric("requests_total", status="429") == 1
    live.assert_nothing_is_left()


async def test_concurrency_is_given_back_by_every_end(
    start_worker: StartWorker, serve: Serve
) -> None:
    tenants = (acme(concurrency=1),)
    live, [worker] = await serving(start_worker, serve, silence, tenants=tenants)
    for _ in range(3):
        request = asyncio.create_task(ask(live, stream=True))
        before = len(worker.submits)
        await live.until(lambda before=before: len(worker.submits) > before)  # type: ignore[misc]
        assert (await ask(live)).status_code == 429
        request.cancel()
        await live.until(lambda: live.gateway.fleet.in_flight == 0)
        await live.gateway.tenancy.quotas.close()
    worker.script = words
    assert (await ask(live)).status_code == 200


async def test_a_full_queue_of_the_tenant_is_a_429(start_worker: StartWorker, serve: Serve) -> None:
    tenants = (acme(max_queued=1),)
    live, [worker] = await serving(
        start_worker, serve, silence, tenants=tenants, queue=QueueConfig(credit_ahead=0)
    )
    worker.load = pb.Load(running_sequences=5)
    running = live.gateway.fleet.workers()[0]
    running.info = replace(running.info, max_running_sequences=1)
    tasks = [asyncio.create_task(ask(live)) for _ in range(2)]
    await live.until(lambda: live.metric("waiting_requests") == 1)
    refused = await ask(live)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
    for task in tasks:
        task.cancel()
    await live.until(lambda: live.metric("waiting_requests") == 0)


async def test_debug_keys_see_why(start_worker: StartWorker, serve: Serve) -> None:
    live, _ = await serving(start_worker, serve, words, tenants=(acme(debug=True),))
    told = (await ask(live)).headers["x-pando-route"]
    assert "worker=w0" in told
    plain, _ = await serving(start_worker, serve, words)
    assert "x-pando-route" not in (await ask(plain)).headers


async def test_a_stream_that_began_before_it_was_routed_says_nothing_of_its_route(
    start_worker: StartWorker, serve: Serve
) -> None:
    queue = QueueConfig(credit_ahead=0)
    tenants = (acme(debug=True),)
    live, [worker] = await serving(
        start_worker, serve, silence, tenants=tenants, queue=queue, keep_alive_s=0.01
    )
    linked = live.gateway.fleet.workers()[0]
    linked.info = replace(linked.info, max_running_sequences=1)
    first = asyncio.create_task(ask(live))
    await live.until(lambda: len(worker.submits) == 1)
    body = {**BODY, "stream": True}
    async with live.http.stream("POST", CHAT, json=body, headers=KEY) as response:
        assert not {"x-pando-route", "x-pando-worker"} & set(response.headers)
        worker.script = words
        first.cancel()
        text = (await response.aread()).decode()
    assert "[DONE]" in text


async def test_a_spent_retry_budget_is_no_bill(start_worker: StartWorker, serve: Serve) -> None:
    retries = RetryConfig(burst=1, per_request=0, per_s=0)
    full = failing(pb.OVERLOADED)
    live, workers = await serving(start_worker, serve, full, full, full, retries=retries)
    assert (await ask(live)).status_code == 503
    assert sum(len(worker.submits) for worker in workers) == 2
    assert await used(live) == Counts()
