"""An ask as another server's request, and what it answers as ours."""

from __future__ import annotations

import json

import msgspec
import pytest

from gateway.config import ForeignKind
from gateway.errors import ContextLengthExceeded, InvalidRequest, Overloaded, WorkerLost
from gateway.fleet.foreign_pieces import piece_of
from gateway.fleet.openai_door import call_of, error_of
from gateway.request import (
    Ask,
    ChatPrompt,
    Constraint,
    Decoding,
    Language,
    Sampling,
    Stopping,
    TextPrompt,
    TokenPrompt,
    ToolCallDelta,
    ToolChoice,
    ToolMode,
)
from tests.gateway.fleet.foreign_live import PLAIN, ask


def test_a_salt_keeps_tenants_apart_where_the_server_takes_one() -> None:
    first = json.loads(call_of(ask(), "m", "vllm").body)
    other = Ask("trace", "acme", b"other", TextPrompt("Hi"), PLAIN)
    assert first["cache_salt"] != json.loads(call_of(other, "m", "vllm").body)["cache_salt"]
    assert "cache_salt" not in json.loads(call_of(ask(), "m", "sglang").body)


def test_what_is_asked_arrives_by_its_openai_name() -> None:
    decoding = Decoding(
        Sampling(temperature=0.5, top_k=4, seed=2**63 + 5, logit_bias={7: 1.5}),
        Stopping(max_tokens=9, stop=("x",), min_tokens=2, ignore_eos=True),
        n=3,
        top_logprobs=2,
    )
    prompt = ChatPrompt(b'[{"role":"user","content":"Hi"}]', template_kwargs=b'{"think":false}')
    call = call_of(ask(prompt=prompt, decoding=decoding), "m", "vllm")
    body = json.loads(call.body)
    assert call.path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert body["chat_template_kwargs"] == {"think": False}
    assert (body["n"], body["max_tokens"], body["stop"], body["seed"]) == (3, 9, ["x"], 5)
    assert (body["top_k"], body["min_tokens"], body["ignore_eos"]) == (4, 2, True)
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)
    assert body["logit_bias"] == {"7": 1.5}
    ids = json.loads(call_of(ask(prompt=TokenPrompt(b"\1\0\0\0\2\0\0\0")), "m", "openai").body)
    assert ids["prompt"] == [1, 2]


def test_what_it_does_not_know_is_refused_by_name() -> None:
    decoding = Decoding(Sampling(top_k=4), Stopping())
    with pytest.raises(InvalidRequest) as caught:
        call_of(ask(decoding=decoding), "m", "openai")
    assert caught.value.param == "top_k"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            400,
            b'{"error":{"message":"This model\'s maximum context length is 5"}}',
            ContextLengthExceeded,
        ),
        (422, b'{"message":"flat"}', InvalidRequest),
        (503, b"not json", Overloaded),
        (404, b"", WorkerLost),
    ],
)
def test_refusals_by_kind(status: int, body: bytes, kind: type[Exception]) -> None:
    assert type(error_of(status, body)) is kind


def test_pieces_without_anything_to_tell_bring_nothing() -> None:
    role = b'{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
    assert piece_of(role).outputs == ()
    assert piece_of(b'{"choices":[]}').usage is None


TOOLS = b'[{"type":"function","function":{"name":"look"}}]'


def test_tools_and_how_they_may_be_used_arrive() -> None:
    choice = ToolChoice(ToolMode.REQUIRED, "look", single=True)
    body = json.loads(
        call_of(ask(prompt=ChatPrompt(b"[]", TOOLS, b"", choice)), "m", "openai").body
    )
    assert body["tools"] == json.loads(TOOLS)
    assert body["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert body["parallel_tool_calls"] is False
    body = json.loads(call_of(ask(prompt=ChatPrompt(b"[]", TOOLS)), "m", "openai").body)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", True)


@pytest.mark.parametrize(
    ("constraint", "kind", "told"),
    [
        (
            Constraint(Language.JSON_SCHEMA, '{"a":1}'),
            "openai",
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"a": 1}},
                }
            },
        ),
        (Constraint(Language.REGEX, "a"), "vllm", {"structured_outputs": {"regex": "a"}}),
        (Constraint(choices=("a",)), "vllm", {"structured_outputs": {"choice": ["a"]}}),
        (Constraint(Language.REGEX, "a"), "sglang", {"regex": "a"}),
    ],
)
def test_a_constraint_arrives_as_this_kind_of_server_reads_it(
    constraint: Constraint, kind: ForeignKind, told: dict[str, object]
) -> None:
    decoding = msgspec.structs.replace(PLAIN, constraint=constraint)
    body = json.loads(call_of(ask(decoding=decoding), "m", kind).body)
    assert {name: body[name] for name in told} == told


@pytest.mark.parametrize(
    "changes",
    [
        {"constraint": Constraint(Language.REGEX, "a")},
        {"constraint": Constraint(choices=("a",))},
        {"echo": True},
        {"score_prompt": True},
    ],
)
def test_what_it_cannot_keep_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        call_of(ask(decoding=msgspec.structs.replace(PLAIN, **changes)), "m", "openai")
    assert caught.value.param in ("structured_outputs", "echo")


def test_its_reasoning_and_calls_are_told_apart() -> None:
    call = {"index": 1, "id": "x", "function": {"name": "look", "arguments": "{"}}
    delta = {"reasoning": "Hm", "tool_calls": [call]}
    (output,) = piece_of(json.dumps({"choices": [{"delta": delta}]}).encode()).outputs
    assert (output.text, output.reasoning) == ("", "Hm")
    assert output.tool_calls == (ToolCallDelta(1, "look", "{"),)
    assert output.num_tokens == 1
