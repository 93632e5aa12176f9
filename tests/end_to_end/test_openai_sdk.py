"""What users' clients send, unchanged, against a live fleet on the real model."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import httpx
import pytest
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from openai import BadRequestError, OpenAI
from pydantic import BaseModel, Field, SecretStr

from tests.end_to_end.conftest import MODEL, Fleet

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"type": "string", "enum": ["C", "F"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
ASKED: Any = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is the weather in Paris?"},
]


class Person(BaseModel):
    """A schema with most of what pydantic makes of one."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    likes: list[Literal["trees", "rivers"]] = Field(max_length=2)


@pytest.fixture(scope="module")
def client(fleet: Fleet) -> Any:
    return OpenAI(base_url=f"{fleet.url}/v1", api_key="none", max_retries=0, timeout=120)


def test_a_required_tool_is_called_with_arguments_of_its_schema(client: Any) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=ASKED,
        tools=[WEATHER],
        tool_choice="required",
        temperature=1,
        seed=1,
        max_tokens=200,
        parallel_tool_calls=False,
    )
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_weather"
    arguments = json.loads(call.function.arguments)
    assert arguments.keys() == {"city", "unit"}
    assert arguments["unit"] in ("C", "F")


def test_a_streamed_call_is_the_same_as_a_whole_one(client: Any) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    asked = {
        "model": MODEL,
        "messages": ASKED,
        "tools": [WEATHER],
        "tool_choice": named,
        "temperature": 0,
        "max_tokens": 200,
    }
    whole = client.chat.completions.create(**asked)
    pieces = list(client.chat.completions.create(**asked, stream=True))
    deltas = [
        delta
        for piece in pieces
        for choice in piece.choices
        for delta in choice.delta.tool_calls or ()
    ]
    assert [delta.function.name for delta in deltas if delta.function and delta.function.name] == [
        "get_weather"
    ]
    arguments = "".join(delta.function.arguments or "" for delta in deltas if delta.function)
    [call] = whole.choices[0].message.tool_calls
    assert arguments == call.function.arguments
    assert len(deltas) > 2
    assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "stop"


def test_a_tools_result_goes_back_and_is_answered(client: Any) -> None:
    first = client.chat.completions.create(
        model=MODEL,
        messages=ASKED,
        tools=[WEATHER],
        tool_choice="required",
        temperature=0,
        max_tokens=200,
        parallel_tool_calls=False,
    )
    said = first.choices[0].message
    assert said.tool_calls is not None
    result = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "sunny, 20 C"}
    again = client.chat.completions.create(
        model=MODEL,
        messages=[*ASKED, said, result],
        tools=[WEATHER],
        tool_choice="none",
        temperature=0,
        max_tokens=30,
    )
    assert again.choices[0].message.content
    assert again.choices[0].message.tool_calls is None
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert again.usage.prompt_tokens_details.cached_tokens > 100


def test_a_model_is_parsed_into_the_clients_own_type(client: Any) -> None:
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "Invent a person."}],
        response_format=Person,
        temperature=1,
        seed=3,
        max_tokens=300,
    )
    person = answer.choices[0].message.parsed
    assert isinstance(person, Person)
    assert 0 <= person.age <= 150


def test_choices_of_one_request_each_conform(client: Any) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "A date?"}],
        n=4,
        temperature=1.5,
        seed=7,
        max_tokens=50,
        extra_body={"structured_outputs": {"regex": r"\d{4}-(0[1-9]|1[0-2])-[0-3]\d"}},
    )
    texts = [choice.message.content for choice in answer.choices]
    assert all(re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-[0-3]\d", text or "") for text in texts)
    assert all(choice.finish_reason == "stop" for choice in answer.choices)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("regex", "["),
        ("grammar", "start: x"),
        ("json", '{"type": "nonsense"}'),
    ],
)
def test_a_bad_constraint_is_a_sentence(client: Any, field: str, value: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.chat.completions.create(
            model=MODEL,
            messages=ASKED,
            max_tokens=5,
            extra_body={"structured_outputs": {field: value}},
        )
    assert caught.value.type == "invalid_request_error"
    assert caught.value.param is not None


def test_an_echo_with_logprobs_is_what_harnesses_ask(client: Any) -> None:
    prompt = "One two three four five six seven"
    answer = client.completions.create(
        model=MODEL, prompt=prompt, echo=True, logprobs=1, max_tokens=0, temperature=0
    )
    [choice] = answer.choices
    assert choice.text == prompt
    logprobs = choice.logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    assert "".join(logprobs.tokens) == prompt
    assert logprobs.token_logprobs[0] is None
    for token, value, top in list(
        zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True)
    )[1:]:
        assert top[token] == value
        assert max(top.values()) >= value
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0


def test_the_best_of_three_is_one_of_them(client: Any) -> None:
    asked = {"model": MODEL, "prompt": "A tree", "max_tokens": 8, "seed": 5, "temperature": 1.0}
    three = client.completions.create(**asked, n=3, logprobs=0)
    best = client.completions.create(**asked, best_of=3)
    means = {}
    for choice in three.choices:
        values = choice.logprobs.token_logprobs
        means[choice.text] = sum(values) / len(values)
    assert [choice.text for choice in best.choices] == [max(means, key=means.__getitem__)]


def test_a_response_streams_a_call(client: Any) -> None:
    tool = {"type": "function", **WEATHER["function"]}
    stream = client.responses.create(
        model=MODEL,
        input="Weather in Paris?",
        instructions="Help.",
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=200,
        temperature=0,
        stream=True,
    )
    events = list(stream)
    last = events[-1]
    assert last.type == "response.completed"
    [call] = last.response.output
    assert call.type == "function_call"
    assert json.loads(call.arguments).keys() == {"city", "unit"}


def test_a_response_is_parsed(client: Any) -> None:
    response = client.responses.parse(
        model=MODEL,
        input="Invent a person.",
        text_format=Person,
        max_output_tokens=300,
        temperature=0,
    )
    assert isinstance(response.output_parsed, Person)


def test_models_are_listed(client: Any) -> None:
    assert MODEL in [model.id for model in client.models.list()]


def test_langchain_calls_a_tool_and_reads_a_model(fleet: Fleet) -> None:
    chat = ChatOpenAI(
        base_url=f"{fleet.url}/v1",
        api_key=SecretStr("none"),
        model=MODEL,
        temperature=0,
        max_retries=0,
        max_completion_tokens=200,
    )
    called = chat.bind_tools([WEATHER], tool_choice="required").invoke("Weather in Paris?")
    assert isinstance(called, AIMessage)
    assert {call["name"] for call in called.tool_calls} == {"get_weather"}
    person = chat.with_structured_output(Person).invoke("Invent a person.")
    assert isinstance(person, Person)
    pieces = [piece.text for piece in chat.stream("Say hello")]
    assert "".join(pieces)


def test_nothing_is_left_of_all_that(fleet: Fleet) -> None:
    fleet.eventually(lambda: fleet.metric("pando_gateway_requests_in_flight") == 0)
    assert httpx.get(f"{fleet.url}/health").status_code == 200
