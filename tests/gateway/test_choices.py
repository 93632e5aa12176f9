"""A request of several choices at a worker that always has room for some of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import msgspec
import pytest

from gateway.config import QueueConfig, RoutingConfig
from gateway.tenant_config import PolicyConfig
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fake_worker import Line, words

BOUND = 8


async def ask(live: Live, n: int = 1) -> httpx.Response:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "n": n}
    return await live.http.post("/v1/chat/completions", json=body)


@pytest.mark.parametrize("policy", ["consistent", "cost", "round_robin"])
async def test_it_is_passed_by_a_few_and_then_gathers_its_room(
    start_worker: StartWorker, serve: Serve, policy: str
) -> None:
    first_may_end = asyncio.Event()

    async def script(submit: pb.Submit, line: Line) -> None:
        if len(worker.submits) == 1:
            await first_may_end.wait()
        await words(submit, line)

    worker = await start_worker(script=script)
    routing = RoutingConfig(policy=msgspec.convert({"name": policy}, PolicyConfig))
    live = await serve(worker, queue=QueueConfig(credit_ahead=0), routing=routing)
    await live.until_linked("w0")
    linked = live.gateway.fleet.workers()[0]
    linked.info = replace(linked.info, max_running_sequences=2)
    tasks = [asyncio.create_task(ask(live))]
    await live.until(lambda: len(worker.submits) == 1)
    tasks.append(asyncio.create_task(ask(live, n=2)))
    await live.until(lambda: live.metric("waiting_requests") == 1)
    for _ in range(BOUND):
        assert (await ask(live)).status_code == 200
    tasks.append(asyncio.create_task(ask(live)))
    await live.until(lambda: live.metric("waiting_requests") == 2)
    first_may_end.set()
    assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {200}
    assert [submit.n for submit in worker.submits] == [1] * (1 + BOUND) + [2, 1]
    live.assert_nothing_is_left()
