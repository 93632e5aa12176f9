"""A request is timed by the tokens that are seen, on a clock that the test turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest

from loadtest.errors import RequestRefused
from loadtest.load.prompt import Prompt
from loadtest.load.target import Answer, Target, ask, first_model

CHAT = Prompt("c", 0, "one", {"messages": [{"role": "user", "content": "Hi"}]}, 8)
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}


@dataclass(slots=True)
class Clock:
    """Stands still until the stream below moves it."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Stream(httpx.AsyncByteStream):
    """Every line after the clock went on by a second."""

    clock: Clock
    lines: list[str]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for line in self.lines:
            self.clock.now += 1.0
            yield f"{line}\n\n".encode()


def chunk(**fields: object) -> str:
    return f"data: {json.dumps(fields)}"


def delta(**fields: object) -> str:
    return chunk(choices=[{"delta": fields}])


def answered(
    lines: list[str], prompt: Prompt = CHAT, status: int = 200, target: Target | None = None
) -> tuple[Answer, httpx.Request]:
    """What comes of these lines, and the request that was sent."""
    clock, seen = Clock(), list[httpx.Request]()

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, headers={"x-pando-worker": "w7"}, stream=Stream(clock, lines))

    async def run() -> Answer:
        async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as http:
            return await ask(http, target or Target("http://x/", "m"), prompt, clock)

    return asyncio.run(run()), seen[0]


def test_times_are_of_events_with_output() -> None:
    lines = [
        delta(role="assistant", content=""),
        delta(content="a"),
        ": a comment",
        delta(content="b"),
        delta(tool_calls=[{"index": 0}]),
        chunk(choices=[{"delta": {}, "finish_reason": "stop"}]),
        chunk(choices=[], usage=USAGE),
        "data: [DONE]",
    ]
    answer, _ = answered(lines)
    assert answer.began == 100.0
    assert answer.seen == [102.0, 104.0, 105.0]
    assert answer.ended == 108.0
    assert (answer.text, answer.worker, answer.status, answer.error) == ("ab", "w7", 200, "")
    assert (answer.usage.prompt_tokens, answer.cached_tokens) == (9, 4)


def test_a_text_may_hold_what_ends_lines_elsewhere() -> None:
    said = "one\u2028two\x85"
    line = json.dumps({"choices": [{"delta": {"content": said}}]}, ensure_ascii=False)
    answer, _ = answered([f"data: {line}", "data: [DONE]"])
    assert (answer.text, answer.error) == (said, "")


def test_reasoning_is_output_and_no_text_of_the_answer() -> None:
    answer, _ = answered([delta(reasoning_content="hm"), delta(content="x"), "data: [DONE]"])
    assert answer.seen == [101.0, 102.0]
    assert answer.text == "x"
    assert answer.cached_tokens is None


def test_a_plain_prompt_goes_to_completions() -> None:
    prompt = Prompt("c", 0, "", {"prompt": "one"}, 2)
    answer, request = answered([chunk(choices=[{"text": "x"}]), "data: [DONE]"], prompt)
    assert str(request.url) == "http://x/v1/completions"
    assert answer.text == "x"
    body = json.loads(request.content)
    assert body == {
        "prompt": "one",
        "model": "m",
        "max_tokens": 2,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_every_tenant_has_its_key_and_the_others_everybodys() -> None:
    target = Target("http://x", "m", {"": "all", "one": "own"}, True, {"top_k": 1})
    _, request = answered(["data: [DONE]"], target=target)
    assert request.headers["authorization"] == "Bearer own"
    body = json.loads(request.content)
    assert (body["ignore_eos"], body["top_k"]) == (True, 1)
    assert target.headers("two") == {"authorization": "Bearer all"}
    assert Target("http://x", "m").headers("two") == {}


@pytest.mark.parametrize(
    ("lines", "status", "error"),
    [
        (["no room"], 429, "no room\n\n"),
        ([delta(content="a")], 200, "the stream ended without [DONE]"),
        ([chunk(error={"message": "lost"}), "data: [DONE]"], 200, "{'message': 'lost'}"),
        (["data: {"], 200, "DecodeError: Input data was truncated"),
        (["data: 7"], 200, "ValidationError: Expected `object`, got `int`"),
        (
            [chunk(usage=[9])],
            200,
            "ValidationError: Expected `object | null`, got `array` - at `$.usage`",
        ),
    ],
)
def test_what_is_no_whole_answer_says_so(lines: list[str], status: int, error: str) -> None:
    answer, _ = answered(lines, status=status)
    assert (answer.status, answer.error) == (status, error)


@pytest.mark.parametrize(
    ("url", "error"), [("http://127.0.0.1:9", "ConnectError"), ("http://x:port", "InvalidURL")]
)
def test_a_server_that_is_not_there_is_an_error_of_its_sample(url: str, error: str) -> None:
    async def run() -> Answer:
        async with httpx.AsyncClient() as http:
            return await ask(http, Target(url, "m"), CHAT)

    answer = asyncio.run(run())
    assert answer.status == 0
    assert answer.error.startswith(error)
    with pytest.raises(RequestRefused, match="names no model"):
        first_model(url, {})
