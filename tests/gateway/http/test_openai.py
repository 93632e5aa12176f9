"""What is refused, by which name; and that nothing odd gets through or breaks the parser."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest, public_body
from gateway.http.decoding import _STRING
from gateway.http.openai import (
    ChatRequest,
    CompletionRequest,
    read_chat,
    read_completion,
)

LIMITS = LimitConfig()
USER = {"role": "user", "content": "Hi"}


def chat(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [USER], **fields}).encode()


def refused(
    body: bytes,
    read: Callable[[bytes, LimitConfig], object] = read_chat,
    limits: LimitConfig = LIMITS,
) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(body, limits)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"n": True}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 2**31}, "max_completion_tokens"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"logit_bias": {"1": 101}}, "logit_bias[...]"),
        ({"logit_bias": {"one": 1}}, "logit_bias"),
        ({"logit_bias": {"2147483648": 1}}, "logit_bias"),
        ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
        ({"seed": 2**63}, "seed"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": "x" * 1025}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [1] * 129}, "stop_token_ids"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        ({"min_p": 1.5}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"top_k": -2}, "top_k"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [USER] * 2049}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [USER, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        ({"messages": [{**USER, "colour": 1}]}, "messages[0].colour"),
        ({"messages": [{**USER, "tool_calls": [{}]}]}, "messages[0].tool_calls[0].id"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content"),
        (
            {"messages": [{**USER, "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": [{**USER, "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{**USER, "audio": {"id": "a"}}]}, "messages[0].audio"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools"),
        ({"model": ""}, "model"),
        ({"model": "x" * 257}, "model"),
        ({"prompt_cache_key": "x" * 257}, "prompt_cache_key"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(fields: dict[str, object], param: str | None) -> None:
    assert refused(chat(**fields)).param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"functions": [{"name": "f"}]},
        {"function_call": "auto"},
        {"modalities": ["text", "audio"]},
        {"audio": {"voice": "alloy"}},
        {"prediction": {"type": "content", "content": "x"}},
        {"verbosity": "low"},
        {"web_search_options": {}},
    ],
)
def test_what_does_nothing_here_is_refused_as_unsupported(fields: dict[str, object]) -> None:
    error = refused(chat(**fields))
    assert (error.param, error.code) == (next(iter(fields)), "unsupported_parameter")


def completion(**fields: object) -> bytes:
    return json.dumps({"model": "m", "prompt": "x", **fields}).encode()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"echo": True, "logprobs": 2}, "logprobs"),
        ({"echo": True, "stream": True, "n": 2}, "echo"),
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"best_of": 10_000}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
    ],
)
def test_a_completion_that_cannot_be_made_is_refused_by_its_field(
    fields: dict[str, object], param: str
) -> None:
    assert refused(completion(**fields), read_completion).param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"echo": True, "max_tokens": 0},
        {"best_of": 3, "n": 2},
        {"n": 2, "best_of": 2, "stream": True},
    ],
)
def test_echo_and_best_of_pass(fields: dict[str, object]) -> None:
    read_completion(completion(**fields), LIMITS)


def tool(name: str = "f", **more: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, **more}}


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([tool("")], "tools[0].function.name"),
        ([tool("no blanks")], "tools[0].function.name"),
        ([tool(), tool()], "tools[1].function.name"),
        ([tool(strange=1)], "tools[0].function.strange"),
        ([{"type": "custom", "custom": {}}], "tools[0].type"),
        ([tool(parameters=[1])], "tools[0].function.parameters"),
        ([tool(str(n)) for n in range(129)], "tools"),
    ],
)
def test_a_wrong_tool_is_refused_by_its_place(tools: list[object], param: str) -> None:
    assert refused(chat(tools=tools)).param == param


def test_an_endless_schema_of_a_tool_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(100):
        deep = {"properties": deep}
    assert refused(chat(tools=[tool(parameters=deep)])).param == "tools[0].function.parameters"


def test_harmless_values_and_fields_for_the_operator_pass() -> None:
    read_chat(
        chat(
            tools=[],
            tool_choice="none",
            response_format={"type": "text"},
            modalities=["text"],
            functions=None,
            user="me",
            metadata={"a": "b"},
            store=True,
            service_tier="auto",
            temperature=None,
            stop=None,
        ),
        LIMITS,
    )


def test_an_answer_of_the_sdk_can_be_sent_back_as_history() -> None:
    history: dict[str, object] = {
        "role": "assistant",
        "content": "Hello",
        "refusal": None,
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "annotations": [],
    }
    request = read_chat(chat(messages=[USER, history, USER]), LIMITS)
    assert len(request.messages) == 3


def test_missing_and_unknown_fields_have_codes_of_their_own() -> None:
    missing = refused(b'{"model":"m"}')
    assert (missing.param, missing.code) == ("messages", "missing_required_parameter")
    unknown = refused(chat(colour="red"))
    assert (unknown.param, unknown.code) == ("colour", "unknown_parameter")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b"null", None),
        (chat() + b" x", None),
        (b"\xef\xbb\xbf{}", None),
        (chat().replace(b"Hi", b"\xff"), None),
        (chat().replace(b"Hi", b"\\ud800"), "messages[0].content"),
        (chat().replace(b"Hi", b"\\udc00 \\ud83d"), "messages[0].content"),
        (chat(temperature=0).replace(b"0}", b"NaN}"), None),
        (chat(temperature=0).replace(b"0}", b"Infinity}"), None),
        (chat(temperature=0).replace(b"0}", b"1e999}"), "temperature"),
        (chat(chat_template_kwargs={"a": 0}).replace(b"0}", b"[" * 100_000), None),
    ],
)
def test_what_is_no_json_text_is_refused(body: bytes, param: str | None) -> None:
    assert refused(body).param == param


def test_deep_nesting_is_refused_by_name() -> None:
    value: object = 1
    for _ in range(40):
        value = {"a": value}
    assert refused(chat(chat_template_kwargs={"x": value})).param == "chat_template_kwargs"


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([], "prompt"),
        ([1, "a"], "prompt"),
        ([[1], "a"], "prompt"),
        ([-1], "prompt[0]"),
        ([2**31], "prompt[0]"),
        ([[1.5]], "prompt[0][0]"),
        (["a"] * 129, "prompt"),
        ({"a": 1}, "prompt"),
        (None, "prompt"),
    ],
)
def test_a_prompt_is_text_or_ids_of_one_kind(prompt: object, param: str | None) -> None:
    body = json.dumps({"model": "m", "prompt": prompt}).encode()
    assert refused(body, read_completion).param == param


def of_nodes(most: int, **others: int) -> LimitConfig:
    return LimitConfig(json_nodes=most, **others)


@pytest.mark.parametrize(
    "fields",
    [
        {"chat_template_kwargs": {"a": [{}] * 200}},
        {"chat_template_kwargs": {"a": [[]] * 200}},
        {"chat_template_kwargs": {"a": [""] * 200}},
        {"chat_template_kwargs": {"a": [1] * 200}},
        {"chat_template_kwargs": {str(number): "" for number in range(100)}},
        {"tools": [{}] * 200},
        {"user": [{}] * 200},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 50}]},
    ],
)
def test_too_many_small_things_are_refused_before_they_are_made(fields: dict[str, object]) -> None:
    for indent in (None, 1):
        body = json.dumps({"model": "m", "messages": [USER], **fields}, indent=indent).encode()
        error = refused(body, limits=of_nodes(150))
        assert "at most 150 strings and members" in error.detail


@pytest.mark.parametrize("text", ["a, b {[" * 500, '\\"' * 500, "\\", '", "' * 300 + "\\"])
def test_what_a_text_holds_is_not_counted(text: str) -> None:
    message = {"role": "user", "content": text}
    request = read_chat(chat(messages=[message]), of_nodes(20))
    assert request.messages[0].content == text


@pytest.mark.parametrize("sign", [b'"', b'\\"', b'"\\'])
def test_strings_without_an_end_are_looked_at_once(sign: bytes) -> None:
    """A quote at which no string was found would be where the whole rest is looked at in vain."""
    body = chat().replace(b"Hi", sign * 1000)[:-4]
    strings = [string.span() for string in _STRING.finditer(body)]
    assert b'"' not in _STRING.sub(b"", body)
    assert sum(end - start for start, end in strings) <= len(body)
    refused(body)


def test_text_parts_and_token_ids_have_limits_of_their_own() -> None:
    part = {"type": "text", "text": "x"}
    messages = [{"role": "user", "content": [part] * 3}] * 2
    read_chat(chat(messages=messages), LimitConfig(content_parts=6))
    error = refused(chat(messages=messages), limits=LimitConfig(content_parts=5))
    assert (error.param, "at most 5 text parts" in error.detail) == ("messages", True)
    for prompt in ([1] * 60, [[1] * 30, [1] * 30]):
        body = json.dumps({"model": "m", "prompt": prompt}).encode()
        read_completion(body, of_nodes(20, prompt_ids=60))
        error = refused(body, read_completion, of_nodes(20, prompt_ids=59))
        assert (error.param, "at most 59 token ids" in error.detail) == ("prompt", True)
        body = json.dumps({"model": "m", "prompt": "x", "stop": [1] * 90}).encode()
        error = refused(body, read_completion, of_nodes(20, prompt_ids=59))
        assert error.param is None


def test_a_large_body_is_not_read_again_to_say_where_it_is_wrong() -> None:
    lone = b"\\ud800"
    assert refused(chat().replace(b"Hi", lone + b"a" * 1000)).param == "messages[0].content"
    assert refused(chat().replace(b"Hi", lone + b"a" * 300_000)).param is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = sorted({*ChatRequest.__struct_fields__, *CompletionRequest.__struct_fields__})


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4), st.sampled_from([True, False]))
def test_any_json_is_read_or_refused_with_a_sentence(
    fields: dict[str, object], is_chat: bool
) -> None:
    body = json.dumps({"model": "m", "messages": [USER], **fields} if is_chat else fields).encode()
    read = read_chat if is_chat else read_completion
    try:
        request = read(body, LIMITS)
    except InvalidRequest as error:
        told = public_body(error).error
        assert told.message
        msgspec.json.encode(told)
    else:
        assert not math.isnan(request.temperature or 0)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_not_broken(body: bytes) -> None:
    for read in (read_chat, read_completion):
        with pytest.raises(InvalidRequest):
            read(body, LIMITS)


def test_prompt_logprobs_come_without_alternatives_and_not_in_a_stream() -> None:
    assert read_chat(chat(prompt_logprobs=0), LIMITS).prompt_logprobs == 0
    for fields in ({"prompt_logprobs": 1}, {"prompt_logprobs": 0, "stream": True}):
        assert refused(chat(**fields)).param == "prompt_logprobs"
