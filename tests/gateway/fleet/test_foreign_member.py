"""What keeps such a server in the fleet, and what of it the gateway believes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from gateway.config import BreakerConfig
from gateway.queueing.credit import has_credit
from pando.ports import free_ports
from tests.gateway.conftest import Chat, Serve, StartWorker
from tests.gateway.fleet.foreign_live import CHAT, cut, delta, fake_server, member, refuse

ANSWER = cut(delta("x", finish_reason="stop"), "[DONE]")


class Server:
    """Lists some models, and answers for the first one alone."""

    def __init__(self, *models: str) -> None:
        self.served = list(models)
        self.looks = 0
        self.asked: list[str] = []

    async def models(self, _: Request) -> Response:
        self.looks += 1
        return JSONResponse({"data": [{"id": model} for model in self.served]})

    async def chat(self, request: Request) -> Response:
        model = json.loads(await request.body())["model"]
        self.asked.append(model)
        if model not in self.served:
            return JSONResponse({"error": {"message": "no such model"}}, 404)
        return await ANSWER(request)


def chat(model: str) -> Chat:
    return {**CHAT, "model": model}


async def test_a_server_that_fails_every_request_is_left_alone(serve: Serve) -> None:
    tries = 0

    async def failing(_: Request) -> Response:
        nonlocal tries
        tries += 1
        return JSONResponse({"error": {"message": "boom"}}, 500)

    bad, good = free_ports(2)
    breaker = BreakerConfig(failures=3, open_s=600, max_open_s=600)
    async with fake_server(bad, failing), fake_server(good, ANSWER):
        servers = [
            member(f"http://127.0.0.1:{port}", name=name)
            for name, port in (("bad", bad), ("good", good))
        ]
        front = await serve(foreign=tuple(servers), breaker=breaker)
        await front.until_linked("bad", "good")
        for number in range(40):
            body = {**CHAT, "messages": [{"role": "user", "content": f"Hi {number}"}]}
            assert (await front.http.post("/v1/chat/completions", json=body)).status_code == 200
        assert tries == breaker.failures
        front.assert_nothing_is_left()


async def test_a_server_that_changes_its_model_serves_the_new_one(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway")
    server = Server("tiny")
    [port] = free_ports(1)
    async with fake_server(port, server.chat, server.models):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        server.served = ["large"]
        await front.until(lambda: front.gateway.fleet.models() == ("large",))
        answer = await front.http.post("/v1/chat/completions", json=chat("large"))
        assert answer.status_code == 200
        assert server.asked == ["large"]
        assert front.metric("worker_up", worker="f0") == 1
    assert "model_changed" in caplog.text


async def test_a_server_that_lists_another_model_first_keeps_its_own(serve: Serve) -> None:
    server = Server("tiny")
    [port] = free_ports(1)
    async with fake_server(port, server.chat, server.models):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        [worker] = front.gateway.fleet.workers()
        server.served = ["large", "tiny"]
        seen = server.looks
        await front.until(lambda: server.looks > seen + 2)
        assert front.gateway.fleet.workers() == (worker,)


async def test_a_server_is_asked_by_its_own_name_for_the_model(serve: Serve) -> None:
    server = Server("tiny")
    [port] = free_ports(1)
    async with fake_server(port, server.chat, server.models):
        foreign = member(f"http://127.0.0.1:{port}", served_model_name="big")
        front = await serve(foreign=(foreign,))
        await front.until_linked("f0")
        assert front.gateway.fleet.models() == ("big",)
        answer = await front.http.post("/v1/chat/completions", json=chat("big"))
        assert answer.status_code == 200
        assert server.asked == ["tiny"]


async def test_a_server_whose_name_is_taken_says_nothing_of_the_one_that_has_it(
    serve: Serve, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("tiny")
    [port] = free_ports(1)
    front = await serve(
        await start_worker(), foreign=(member(f"http://127.0.0.1:{port}", name="w0"),)
    )
    await front.until_linked("w0")
    async with fake_server(port, server.chat, server.models):
        await front.until(lambda: "name_taken" in caplog.text)
        seen = server.looks
        await front.until(lambda: server.looks > seen + 2)
        assert front.metric("worker_up", worker="w0") == 1


async def test_a_server_that_never_answered_is_shown_as_down(serve: Serve) -> None:
    [port] = free_ports(1)
    front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
    await front.until(lambda: front.gateway.fleet.settled)
    labels = {"worker": "f0"}
    registry = front.gateway.telemetry.registry
    assert registry.get_sample_value("pando_gateway_worker_up", labels) == 0


async def test_a_server_is_sent_a_few_ahead_of_what_it_runs(serve: Serve) -> None:
    [port] = free_ports(1)
    async with fake_server(port, ANSWER):
        foreign = member(f"http://127.0.0.1:{port}", kind="openai", max_running_sequences=8)
        front = await serve(foreign=(foreign,))
        await front.until_linked("f0")
        [worker] = front.gateway.fleet.workers()
        worker.num_sequences = 9
        assert has_credit(worker, 0.25)
        worker.num_sequences = 10
        assert not has_credit(worker, 0.25)
        worker.num_sequences = 0


async def long(_: Request) -> Response:
    return Response(b'{"data": [{"id": "tiny"}], "more": "%b"}' % (b"x" * 5 * 1024 * 1024))


async def test_what_it_tells_of_itself_is_read_up_to_a_size(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    [port] = free_ports(1)
    front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
    async with fake_server(port, ANSWER, models=long):
        await front.until(lambda: "its answer to /v1/models is longer" in caplog.text)
        assert not front.gateway.fleet.workers()
    async with fake_server(port, ANSWER, metrics=long):
        await front.until_linked("f0")
        await front.until(lambda: "its answer to /metrics is longer" in caplog.text)
        assert (await front.http.post("/v1/chat/completions", json=CHAT)).status_code == 200


async def test_an_answer_that_never_ends_is_not_waited_for(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async def dripping(_: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                yield b" "
                await asyncio.sleep(0.01)

        return StreamingResponse(pieces())

    [port] = free_ports(1)
    async with fake_server(port, refuse(200, {}), models=dripping):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}", timeout_s=0.2),))
        await front.until(lambda: "it took too long" in caplog.text)


async def test_prompt_logprobs_are_refused_by_name_where_no_worker_of_ours_is(
    serve: Serve,
) -> None:
    (port,) = free_ports(1)
    async with fake_server(port, ANSWER):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        body = {**CHAT, "prompt_logprobs": 0}
        answer = await front.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("prompt_logprobs", "unsupported_parameter")
        assert (await front.http.post("/v1/chat/completions", json=CHAT)).status_code == 200
        front.assert_nothing_is_left()
