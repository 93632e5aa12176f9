"""POST /v1/responses, by the official SDK against a live gateway and a scripted worker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import APIStatusError

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.http.responses.request import read_response
from proto import worker_pb2 as pb
from tests.gateway.conftest import Serve, StartWorker
from tests.gateway.fake_worker import Line, failing

LIMITS = LimitConfig()


async def thoughtful(submit: pb.Submit, line: Line) -> None:
    """Reasoning, text and two calls, each in pieces."""
    pieces: list[dict[str, Any]] = [
        {"reasoning": "Let me "},
        {"reasoning": "see."},
        {"text": "I "},
        {"text": "look."},
        {"tool_calls": [pb.ToolCallDelta(index=0, name="look")]},
        {"tool_calls": [pb.ToolCallDelta(index=0, arguments='{"a":')]},
        {"tool_calls": [pb.ToolCallDelta(index=0, arguments="1}")]},
        {"tool_calls": [pb.ToolCallDelta(index=1, name="leave", arguments="{}")]},
        {"finish_reason": pb.STOP},
    ]
    for piece in pieces:
        output = pb.Output(request_id=submit.request_id, token_ids=b"\1\0\0\0", **piece)
        line.step(outputs=[output])
    line.done(submit.request_id, completion=len(pieces))


def read(**fields: object) -> Any:
    body = {"model": "tiny", "input": "Hi", **fields}
    return read_response(json.dumps(body).encode(), LIMITS)[1]


def refused(**fields: object) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        read(**fields)
    return caught.value.param


async def test_a_response_has_its_output_as_items(
    serve_linked: Serve, start_worker: StartWorker
) -> None:
    live = await serve_linked(await start_worker(script=thoughtful))
    response = await live.openai.responses.create(
        model="tiny", input="Hi", instructions="Be kind", metadata={"a": "b"}
    )
    reasoning, message, look, leave = response.output
    assert reasoning.type == "reasoning"
    assert reasoning.content is not None
    assert reasoning.content[0].text == "Let me see."
    assert message.type == "message"
    assert response.output_text == "I look."
    assert look.type == leave.type == "function_call"
    assert (look.name, look.arguments) == ("look", '{"a":1}')
    assert (leave.name, leave.arguments) == ("leave", "{}")
    assert (response.status, response.instructions) == ("completed", "Be kind")
    assert response.metadata == {"a": "b"}
    assert response.usage is not None
    assert response.usage.input_tokens_details.cached_tokens == 3
    assert response.usage.output_tokens_details.reasoning_tokens == 2
    assert len({item.id for item in response.output}) == 4


async def test_a_streams_events_build_the_very_response(
    serve_linked: Serve, start_worker: StartWorker
) -> None:
    live = await serve_linked(await start_worker(script=thoughtful))
    stream = await live.openai.responses.create(model="tiny", input="Hi", stream=True)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:3]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]
    last = events[-1]
    assert last.type == "response.completed"
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == last.response.output
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    arguments = [e for e in events if e.type == "response.function_call_arguments.delta"]
    assert (text, "".join(e.delta for e in arguments)) == ("I look.", '{"a":1}{}')
    opened = [e.output_index for e in events if e.type == "response.output_item.added"]
    assert opened == [0, 1, 2, 3]


async def test_the_sdks_own_builder_takes_the_stream(
    serve_linked: Serve, start_worker: StartWorker
) -> None:
    live = await serve_linked(await start_worker(script=thoughtful))
    async with live.openai.responses.stream(model="tiny", input="Hi") as stream:
        async for _ in stream:
            pass
        response = await stream.get_final_response()
    assert response.output_text == "I look."


async def test_what_fails_ends_with_a_failed_response(
    serve_linked: Serve, start_worker: StartWorker
) -> None:
    async def breaks(submit: pb.Submit, line: Line) -> None:
        line.text(submit.request_id, "I ")
        line.fail(submit.request_id, pb.INTERNAL)

    live = await serve_linked(await start_worker(script=breaks))
    stream = await live.openai.responses.create(model="tiny", input="Hi", stream=True)
    events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.status == "failed"


async def test_a_refusal_before_the_first_event_is_a_plain_error(
    serve_linked: Serve, start_worker: StartWorker
) -> None:
    script = failing(pb.INVALID_REQUEST, "No.", "tools")
    live = await serve_linked(await start_worker(script=script))
    with pytest.raises(APIStatusError) as caught:
        await live.openai.responses.create(model="tiny", input="Hi", stream=True)
    assert caught.value.status_code == 400


async def test_what_is_cut_is_incomplete(serve_linked: Serve, start_worker: StartWorker) -> None:
    async def cut(submit: pb.Submit, line: Line) -> None:
        line.text(submit.request_id, "I ", finish_reason=pb.LENGTH)
        line.done(submit.request_id)

    live = await serve_linked(await start_worker(script=cut))
    response = await live.openai.responses.create(model="tiny", input="Hi", max_output_tokens=1)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_items_become_the_chat_that_they_are() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Look"}]},
        {
            "type": "reasoning",
            "id": "rs",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm"}],
        },
        {
            "type": "message",
            "role": "assistant",
            "id": "m",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look", "annotations": []}],
        },
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "leave", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "seen"},
        {
            "type": "function_call_output",
            "call_id": "2",
            "output": [{"type": "input_text", "text": "left"}],
        },
        {"role": "user", "content": "And?"},
    ]
    messages = read(input=items, instructions="Be kind").messages
    assert [message.role for message in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
    ]
    said = messages[2]
    assert (said.content, said.reasoning_content) == ("I look", "Hm")
    assert [call.id for call in said.tool_calls] == ["1", "2"]
    assert [message.tool_call_id for message in messages[3:5]] == ["1", "2"]


def test_an_answer_can_be_sent_back_as_the_sdk_has_it() -> None:
    items = [
        {"role": "user", "content": "Hi"},
        {
            "id": "msg_1",
            "content": [{"annotations": [], "text": "Yes", "type": "output_text", "logprobs": []}],
            "role": "assistant",
            "status": "completed",
            "type": "message",
            "phase": None,
        },
        {
            "id": "fc",
            "arguments": "{}",
            "call_id": "1",
            "name": "f",
            "type": "function_call",
            "status": "completed",
        },
    ]
    assert [message.role for message in read(input=items).messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"input": []}, "input"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"text": {"format": {"type": "text", "name": "x"}}}, "text.format"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"stream_options": {}}, "stream_options"),
        ({"max_tokens": 4}, "max_tokens"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    assert refused(**fields) == param


def test_settings_reach_the_chat() -> None:
    schema = {"type": "object"}
    chat = read(
        text={"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}},
        reasoning={"effort": "low", "summary": "auto"},
        include=["message.output_text.logprobs"],
        tools=[{"type": "function", "name": "f", "parameters": schema, "strict": True}],
        tool_choice={"type": "function", "name": "f"},
        max_output_tokens=9,
    )
    assert chat.response_format.json_schema.schema == schema
    assert (chat.reasoning_effort, chat.logprobs, chat.max_completion_tokens) == ("low", True, 9)
    assert chat.tools[0].function.name == "f"
    assert chat.tool_choice["function"] == {"name": "f"}
