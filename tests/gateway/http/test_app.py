"""The HTTP surface as the official client sees it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator

import openai
import pytest
from openai.types.chat import ChatCompletionTokenLogprob

from gateway.config import LimitConfig, QueueConfig
from gateway.tenant_config import TenantConfig
from proto import worker_pb2 as pb
from tests.gateway.conftest import Chat, Live, Serve, StartWorker, events_of
from tests.gateway.fake_worker import Line, failing, silence

CHAT: Chat = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}


def word(token_id: int, text: bytes, logprob: float, *top: pb.Logprob) -> pb.TokenLogprobs:
    sampled = pb.Logprob(token_id=token_id, logprob=logprob, token=text)
    return pb.TokenLogprobs(sampled=sampled, top=top)


async def with_logprobs(submit: pb.Submit, line: Line) -> None:
    best = pb.Logprob(token_id=5, logprob=-0.25, token=b"He")
    line.text(submit.request_id, "", logprobs=[word(5, b"H\xc3", -0.5, best)])
    line.text(submit.request_id, "Hé", logprobs=[word(6, b"\xa9", float("-inf"), best)])
    line.text(submit.request_id, "!", logprobs=[word(7, b"!", -0.1, best)], finish_reason=pb.LENGTH)
    line.done(submit.request_id, completion=3)


async def flood(submit: pb.Submit, line: Line) -> None:
    while True:
        line.text(submit.request_id, "x" * 65536)
        await asyncio.sleep(0.001)


@pytest.fixture
async def live(start_worker: StartWorker, serve: Serve) -> AsyncIterator[Live]:
    live = await serve(await start_worker(), aliases={"nick": "tiny", "gone": "nothing"})
    await live.until_linked("w0")
    yield live
    live.assert_nothing_is_left()


async def test_a_chat_streams_in_the_official_client(live: Live) -> None:
    stream = await live.openai.chat.completions.create(
        **CHAT, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == "Hello big world"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 3
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


async def test_a_chat_answers_in_one_piece(live: Live) -> None:
    answer = await live.openai.chat.completions.create(**CHAT)

    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "Hello big world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.model_dump(
        include={"prompt_tokens", "completion_tokens", "total_tokens"}
    ) == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
    }


async def test_a_stream_on_the_wire_ends_with_done(live: Live) -> None:
    response = await live.http.post("/v1/chat/completions", json={**CHAT, "stream": True})

    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-pando-worker"] == "w0"
    events = events_of(response.text)
    assert events[-1] == "[DONE]"
    assert "usage" not in json.loads(events[0])
    assert json.loads(events[0])["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert json.loads(events[-2])["choices"][0]["delta"] == {}


async def test_every_choice_is_streamed_under_its_index(live: Live) -> None:
    stream = await live.openai.chat.completions.create(**CHAT, n=3, stream=True)
    texts = {0: "", 1: "", 2: ""}
    async for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert set(texts.values()) == {"Hello big world"}


async def test_the_choices_of_several_prompts_are_numbered_prompt_by_prompt(live: Live) -> None:
    answer = await live.openai.completions.create(model="tiny", prompt=["a", "b"], n=2)

    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert {choice.text for choice in answer.choices} == {"Hello big world"}
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 14
    assert answer.usage.completion_tokens == 12


@pytest.mark.parametrize("prompt", ["text", [1, 2, 3], [[1, 2], [3]], ["a", "b", "c"]])
async def test_a_completion_takes_every_form_of_prompt(
    live: Live, prompt: str | list[int] | list[list[int]] | list[str]
) -> None:
    stream = await live.openai.completions.create(model="tiny", prompt=prompt, stream=True)
    texts: dict[int, str] = {}
    async for chunk in stream:
        choice = chunk.choices[0]
        texts[choice.index] = texts.get(choice.index, "") + choice.text
    num_prompts = 1 if isinstance(prompt, str) or isinstance(prompt[0], int) else len(prompt)
    assert texts == dict.fromkeys(range(num_prompts), "Hello big world")


async def test_chat_logprobs_carry_bytes_and_alternatives(
    start_worker: StartWorker, serve: Serve
) -> None:
    live = await serve(await start_worker(script=with_logprobs))
    await live.until_linked("w0")

    answer = await live.openai.chat.completions.create(**CHAT, logprobs=True, top_logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    entries = logprobs.content
    assert entries is not None
    assert b"".join(bytes(entry.bytes or ()) for entry in entries).decode() == "Hé!"
    assert entries[0].top_logprobs[0].token == "He"
    assert entries[1].logprob == -9999.0
    assert answer.choices[0].finish_reason == "length"

    stream = await live.openai.chat.completions.create(
        **CHAT, logprobs=True, top_logprobs=1, stream=True
    )
    streamed: list[ChatCompletionTokenLogprob] = []
    async for chunk in stream:
        if (added := chunk.choices[0].logprobs) is not None:
            assert added.content is not None
            streamed += added.content
    assert streamed == entries


async def test_completion_logprobs_are_lists_side_by_side(
    start_worker: StartWorker, serve: Serve
) -> None:
    live = await serve(await start_worker(script=with_logprobs))
    await live.until_linked("w0")

    answer = await live.openai.completions.create(model="tiny", prompt="x", logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["H\ufffd", "\ufffd", "!"]
    assert logprobs.text_offset == [0, 1, 2]
    assert logprobs.token_logprobs is not None
    assert logprobs.token_logprobs[0] == -0.5
    assert logprobs.top_logprobs is not None
    assert logprobs.top_logprobs[2]["He"] == -0.25


async def test_models_are_those_of_the_linked_workers_and_their_aliases(live: Live) -> None:
    listed = await live.openai.models.list()
    assert [model.id for model in listed.data] == ["tiny", "nick"]
    assert (await live.openai.models.retrieve("tiny")).owned_by == "pando"
    with pytest.raises(openai.NotFoundError):
        await live.openai.models.retrieve("gone")


async def test_an_alias_is_served_under_its_own_name(live: Live) -> None:
    answer = await live.openai.chat.completions.create(model="nick", messages=CHAT["messages"])
    assert answer.model == "nick"


async def test_an_unknown_model_is_not_found(live: Live) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await live.openai.chat.completions.create(model="huge", messages=CHAT["messages"])
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


async def test_a_model_is_not_called_unknown_before_every_worker_was_heard(
    start_worker: StartWorker, serve: Serve
) -> None:
    mute = await start_worker(name="w1", greets=False)
    live = await serve(await start_worker(), mute)
    await live.until_linked("w0")
    request = {**CHAT, "model": "huge"}
    early = await live.http.post("/v1/chat/completions", json=request)
    assert early.status_code == 503
    await live.until(lambda: live.gateway.fleet.settled)
    late = await live.http.post("/v1/chat/completions", json=request)
    assert late.status_code == 404


async def test_a_model_whose_workers_left_is_unavailable_not_unknown(
    start_worker: StartWorker, serve: Serve
) -> None:
    worker = await start_worker()
    live = await serve(worker, queue=QueueConfig(no_worker_s=0.3))
    await live.until_linked("w0")
    await worker.stop()
    await live.until(lambda: not live.gateway.fleet.ready)
    response = await live.http.post("/v1/chat/completions", json=CHAT)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "no_worker")
    live.assert_nothing_is_left()


async def test_a_refusal_names_the_field(live: Live) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await live.openai.chat.completions.create(**CHAT, temperature=3)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as caught:
        await live.openai.chat.completions.create(**CHAT, extra_body={"colour": 1})
    assert (caught.value.param, caught.value.code) == ("colour", "unknown_parameter")


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        (pb.INVALID_REQUEST, 400, "invalid_value"),
        (pb.CONTEXT_LENGTH_EXCEEDED, 400, "context_length_exceeded"),
        (pb.OVERLOADED, 503, "overloaded"),
        (pb.DRAINING, 503, "draining"),
        (pb.INTERNAL, 500, "internal_error"),
        (pb.CANCELLED, 500, "internal_error"),
    ],
)
async def test_a_workers_failure_is_told_in_openais_form(
    start_worker: StartWorker, serve: Serve, code: pb.FailureCode, status: int, told: str
) -> None:
    worker = await start_worker(script=failing(code, "a sentence", "messages"))
    live = await serve(worker)
    await live.until_linked("w0")

    response = await live.http.post("/v1/chat/completions", json={**CHAT, "stream": True})

    assert response.status_code == status
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (told, "messages" if status < 500 else None)
    assert (error["message"] == "a sentence") == (status < 500)
    assert ("retry-after" in response.headers) == (status == 503)
    live.assert_nothing_is_left()


async def test_without_a_worker_a_client_is_asked_to_retry(serve: Serve) -> None:
    live = await serve()
    response = await live.http.post("/v1/chat/completions", json=CHAT)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"]["code"] == "no_worker"


async def test_ready_only_once_a_worker_is_linked(start_worker: StartWorker, serve: Serve) -> None:
    idle = await serve()
    assert (await idle.http.get("/health")).status_code == 200
    assert (await idle.http.get("/ready")).status_code == 503

    live = await serve(await start_worker())
    await live.until_linked("w0")
    assert (await live.http.get("/ready")).json() == {"ready": True, "workers": 1}


async def test_metrics_tell_of_requests_tokens_and_workers(live: Live) -> None:
    await live.openai.chat.completions.create(**CHAT)
    text = (await live.http.get("/metrics")).text
    labels = 'model="tiny",tenant="default",worker="w0"'
    assert f"pando_gateway_prompt_tokens_total{{{labels}}} 7.0" in text
    assert f"pando_gateway_cached_tokens_total{{{labels}}} 3.0" in text
    assert 'pando_gateway_worker_up{worker="w0"} 1.0' in text
    assert 'pando_gateway_worker_leases{worker="w0"} 0.0' in text
    assert live.metric("requests_total", status="200", route="chat_completions") == 1
    assert live.metric("ttft_seconds_count") == live.metric("tpot_seconds_count") == 1


async def test_a_sane_request_id_is_kept_and_another_is_replaced(live: Live) -> None:
    kept = await live.http.post(
        "/v1/chat/completions", json=CHAT, headers={"x-request-id": "my-id.1"}
    )
    assert kept.headers["x-request-id"] == "my-id.1"
    replaced = await live.http.get("/v1/models", headers={"x-request-id": "no spaces here"})
    assert replaced.headers["x-request-id"].startswith("req-")


async def test_unknown_routes_and_methods_are_refused_in_openais_form(live: Live) -> None:
    missing = await live.http.get("/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_url")
    wrong = await live.http.get("/v1/chat/completions")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


async def test_a_large_body_is_refused_declared_or_not(
    start_worker: StartWorker, serve: Serve
) -> None:
    live = await serve(await start_worker(), limits=LimitConfig(body_bytes=100))
    await live.until_linked("w0")

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b" " * 40

    bodies: tuple[bytes | AsyncIterator[bytes], ...] = (b" " * 101, pieces())
    for body in bodies:
        response = await live.http.post("/v1/chat/completions", content=body)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"


async def test_a_body_that_stops_coming_is_given_up(serve: Serve) -> None:
    live = await serve(limits=LimitConfig(body_timeout_s=0.05))
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{")
    assert b" 408 " in await reader.readline()
    writer.close()


async def test_only_the_holder_of_a_key_is_served(start_worker: StartWorker, serve: Serve) -> None:
    tenants = (
        TenantConfig(id="acme", keys=(hashlib.sha256(b"secret").hexdigest(),), models=("tiny",)),
        TenantConfig(id="other", keys=(hashlib.sha256(b"second").hexdigest(),), models=("large",)),
    )
    worker = await start_worker()
    live = await serve(worker, tenants=tenants)
    await live.until_linked("w0")

    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}):
        response = await live.http.post("/v1/chat/completions", json=CHAT, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")

    owner = live.openai.with_options(api_key="secret")
    await owner.chat.completions.create(**CHAT)
    assert (worker.submits[0].tenant, worker.submits[0].namespace) == ("acme", b"acme")

    stranger = live.openai.with_options(api_key="second")
    assert (await stranger.models.list()).data == []
    with pytest.raises(openai.NotFoundError):
        await stranger.chat.completions.create(**CHAT)


async def test_a_silent_stream_is_kept_alive(start_worker: StartWorker, serve: Serve) -> None:
    live = await serve(await start_worker(script=silence), keep_alive_s=0.05)
    await live.until_linked("w0")
    async with live.http.stream(
        "POST", "/v1/chat/completions", json={**CHAT, "stream": True}
    ) as response:
        lines = response.aiter_lines()
        assert await anext(lines) == ": keep-alive"
    await live.until(lambda: live.gateway.fleet.in_flight == 0)


async def test_an_answer_that_takes_too_long_is_ended(
    start_worker: StartWorker, serve: Serve
) -> None:
    worker = await start_worker(script=silence)
    live = await serve(worker, request_timeout_s=0.1)
    await live.until_linked("w0")
    response = await live.http.post("/v1/chat/completions", json=CHAT)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "request_timeout")
    await live.until(lambda: len(worker.cancels) == 1)
    live.assert_nothing_is_left()


@pytest.mark.slow
async def test_a_client_that_takes_nothing_is_let_go_without_a_traceback(
    start_worker: StartWorker, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    live = await serve(await start_worker(script=flood), request_timeout_s=0.5)
    await live.until_linked("w0")
    body = json.dumps({**CHAT, "stream": True}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", live.port, limit=1024)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % len(body) + body)
    await live.until(lambda: live.metric("ended_requests_total", outcome="request_timeout") == 1)
    live.assert_nothing_is_left()
    await live.until(lambda: any("completing response" in text for text in caplog.messages))
    assert not any(record.exc_info for record in caplog.records)
    writer.close()


async def test_what_the_worker_is_asked_is_what_the_client_said(
    start_worker: StartWorker, serve: Serve
) -> None:
    worker = await start_worker()
    live = await serve(worker)
    await live.until_linked("w0")
    await live.openai.chat.completions.create(
        **CHAT,
        temperature=0,
        seed=-1,
        stop="###",
        max_completion_tokens=5,
        logit_bias={"42": -7},
        extra_body={"top_k": 9, "ignore_eos": True, "chat_template_kwargs": {"enable": False}},
    )
    submit = worker.submits[0]
    assert submit.sampling.temperature == 0
    assert submit.sampling.top_p == 1
    assert submit.sampling.top_k == 9
    assert submit.sampling.seed == 2**64 - 1
    assert dict(submit.sampling.logit_bias) == {42: -7}
    assert submit.stopping.max_tokens == 5
    assert list(submit.stopping.stop) == ["###"]
    assert submit.stopping.ignore_eos
    assert json.loads(submit.chat.messages) == CHAT["messages"]
    assert json.loads(submit.chat.template_kwargs) == {"enable": False}
    assert not submit.HasField("top_logprobs")
    assert submit.boundaries[0].num_messages == 1
