"""A server with OpenAI's API as a member: here another gateway of ours plays it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import openai
import pytest
from starlette.requests import Request
from starlette.responses import Response

from gateway.config import ConfigError, QueueConfig
from pando.ports import free_ports
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fleet.foreign_live import (
    CHAT,
    DELTA,
    cut,
    delta,
    fake_server,
    member,
    refuse,
)
from tests.gateway.storyteller import story
from tests.gateway.test_continuation import BODY, Told


async def behind(start_worker: StartWorker, serve: Serve) -> tuple[Live, Live]:
    """A gateway before a gateway: the front one, and the one that plays the foreign server."""
    back = await serve(await start_worker(script=story(0.002)))
    await back.until_linked("w0")
    front = await serve(foreign=(member(f"http://127.0.0.1:{back.port}", kind="openai"),))
    await front.until_linked("f0")
    return front, back


async def test_its_answers_are_those_it_gives_by_itself(
    start_worker: StartWorker, serve: Serve
) -> None:
    front, back = await behind(start_worker, serve)
    told = []
    for live in (front, back):
        response = await live.http.post("/v1/chat/completions", json=BODY)
        assert response.status_code == 200
        told.append(Told.of(response.text))
    assert told[0].text == told[1].text
    assert told[0].logprobs == told[1].logprobs
    assert told[0].finish == told[1].finish
    assert told[0].usage == told[1].usage
    front.assert_nothing_is_left()
    back.assert_nothing_is_left()


async def test_completions_of_text_and_ids_go_through(
    start_worker: StartWorker, serve: Serve
) -> None:
    front, _ = await behind(start_worker, serve)
    answer = await front.openai.completions.create(
        model="tiny", prompt=["a", "b"], max_tokens=5, seed=1, logprobs=1
    )
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
    assert answer.choices[0].logprobs is not None
    assert len(answer.choices[0].logprobs.tokens or []) == 5
    ids = await front.openai.completions.create(model="tiny", prompt=[1, 2, 3], max_tokens=5)
    assert ids.usage is not None
    assert ids.usage.completion_tokens == 5


async def test_a_hang_up_ends_the_request_there_too(
    start_worker: StartWorker, serve: Serve
) -> None:
    worker = await start_worker(script=story(0.05))
    back = await serve(worker)
    await back.until_linked("w0")
    front = await serve(foreign=(member(f"http://127.0.0.1:{back.port}", kind="openai"),))
    await front.until_linked("f0")
    stream = await front.openai.chat.completions.create(**CHAT, max_tokens=500, stream=True)
    await anext(stream)
    await stream.close()
    await back.until(lambda: len(worker.cancels) == 1)
    await front.until(lambda: front.gateway.fleet.in_flight == 0)
    front.assert_nothing_is_left()


async def test_a_server_that_goes_away_leaves_the_fleet_and_comes_back(
    start_worker: StartWorker, serve: Serve
) -> None:
    [port] = free_ports(1)
    foreign = (member(f"http://127.0.0.1:{port}"),)
    front = await serve(foreign=foreign, queue=QueueConfig(no_worker_s=0.3))
    for _ in range(2):
        async with fake_server(port, refuse(200, {})):
            await front.until_linked("f0")
        await front.until(lambda: not front.gateway.fleet.workers())
    response = await front.http.post("/v1/chat/completions", json=CHAT)
    assert response.status_code == 503


@pytest.mark.parametrize(
    ("chat", "status", "code"),
    [
        (refuse(400, {"error": {"message": "no", "param": "top_p"}}), 400, "invalid_value"),
        (refuse(429, {"error": {"message": "full"}}), 503, "overloaded"),
        (refuse(500, {"detail": "secret"}), 502, "worker_lost"),
        (cut(), 502, "worker_lost"),
        (cut("{not json"), 502, "worker_lost"),
        (cut(DELTA), 502, "worker_lost"),
        (cut(DELTA, '{"error": {"message": "secret"}}'), 502, "worker_lost"),
    ],
)
async def test_what_it_refuses_or_breaks_is_told_in_our_words(
    serve: Serve, chat: Callable[[Request], Awaitable[Response]], status: int, code: str
) -> None:
    [port] = free_ports(1)
    async with fake_server(port, chat):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        response = await front.http.post("/v1/chat/completions", json=CHAT)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
        assert "secret" not in response.text
        front.assert_nothing_is_left()


async def test_what_it_began_is_not_taken_up_by_another(
    start_worker: StartWorker, serve: Serve
) -> None:
    [port] = free_ports(1)
    async with fake_server(port, cut(DELTA)):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        with pytest.raises(openai.APIError, match="was lost"):
            async for _ in await front.openai.chat.completions.create(**CHAT, stream=True):
                pass
        assert front.metric("continuations_total") == 0


async def test_its_load_is_read_from_its_metrics(serve: Serve) -> None:
    [port] = free_ports(1)
    async with fake_server(port, refuse(200, {})):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        await front.until(lambda: front.metric("worker_waiting_sequences") == 4)
        assert front.metric("worker_running_sequences") == 3


async def test_signs_that_unicode_takes_for_line_ends_break_nothing(serve: Serve) -> None:
    [port] = free_ports(1)
    text = "a\u2028b\u0085c\x1cd"
    async with fake_server(port, cut(delta(text), delta("!", finish_reason="stop"), "[DONE]")):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        response = await front.http.post("/v1/chat/completions", json=CHAT)
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == text + "!"


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        ("1e-5", 0),
        ("1e+01", 10),
        ("+Inf", 0),
        ("NaN", 0),
        ("-3", 0),
        ("1e", 0),
        ("7 1700000000", 7),
        ("9e999", 10**9),
    ],
)
async def test_no_number_in_its_metrics_ends_the_member(
    serve: Serve, sample: str, value: int
) -> None:
    [port] = free_ports(1)

    async def metrics(_: Request) -> Response:
        return Response(f'vllm:num_requests_running{{m="a}}b"}} {sample}\n{WAITING} 4\n')

    async with fake_server(port, refuse(200, {}), metrics=metrics):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        await front.until(lambda: front.metric("worker_waiting_sequences") == 4)
        assert front.metric("worker_running_sequences") == value


WAITING = "vllm:num_requests_waiting"


async def test_a_member_whose_run_failed_by_a_defect_runs_again(serve: Serve) -> None:
    [port] = free_ports(1)
    async with fake_server(port, refuse(200, {})):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until_linked("f0")
        fleet = front.gateway.fleet
        [worker] = fleet.workers()
        report = fleet.report

        def fail(*_: object) -> None:
            fleet.report = report  # type: ignore[method-assign]
            raise RuntimeError("a defect")

        fleet.report = fail  # type: ignore[method-assign, assignment]
        await front.until(lambda: worker not in fleet.workers())
        await front.until_linked("f0")


async def test_why_it_does_not_answer_is_told_once_and_again_when_it_changes(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [line for line in caplog.messages if line.startswith("worker_unreachable")]

    looks = 0
    answers = [refuse(401, {}), refuse(200, [1]), refuse(200, {"data": []})]

    async def models(request: Request) -> Response:
        nonlocal looks
        looks += 1
        return await answers[min(looks // 4, 2)](request)

    [port] = free_ports(1)
    caplog.set_level(logging.INFO, "gateway")
    async with fake_server(port, refuse(200, {}), models):
        front = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await front.until(lambda: looks > 12)
        assert len(told()) == 3
    assert "401, and it was sent no key: key_variable names the variable" in told()[0]
    assert "ValidationError" in told()[1]
    assert "lists no model" in told()[2]


async def test_a_key_that_is_refused_is_told_by_its_variable(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREIGN_KEY", "sk-secret")
    [port] = free_ports(1)
    caplog.set_level(logging.INFO, "gateway")
    async with fake_server(port, refuse(200, {}), refuse(401, {})):
        foreign = member(f"http://127.0.0.1:{port}", key_variable="FOREIGN_KEY")
        front = await serve(foreign=(foreign,))
        await front.until(lambda: "worker_unreachable" in caplog.text)
    assert "it answered 401 to the key in FOREIGN_KEY, which key_variable names" in caplog.text
    assert "sk-secret" not in caplog.text


async def test_a_key_that_cannot_be_sent_is_not_told(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREIGN_KEY", "sk-secret\n")
    with pytest.raises(ConfigError, match="FOREIGN_KEY") as caught:
        await serve(foreign=(member("http://127.0.0.1:9", key_variable="FOREIGN_KEY"),))
    assert "sk-secret" not in str(caught.value)
