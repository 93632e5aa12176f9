from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import httpx
import pytest

from loadtest.client import Client, events
from loadtest.errors import RequestRefused

CHUNK = '{"choices": [{"text": "a"}]}'
USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 7},
}
GOOD = [": keep-alive", "", f"data: {CHUNK}", f"data: {CHUNK}"]
GOOD += [f"data: {json.dumps({'choices': [], 'usage': USAGE})}", "data: [DONE]"]


def client(status: int, text: str) -> Client:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            body = json.loads(request.content)
            assert body["stream_options"] == {"include_usage": True}
            assert body["prompt"] == [1, 2]
        return httpx.Response(status, text=text)

    ticks: Iterator[float] = itertools.count(0.0, 1.5)
    return Client(
        "http://gateway", clock=lambda: next(ticks), transport=httpx.MockTransport(answer)
    )


def test_the_first_token_is_timed_and_usage_read() -> None:
    found = client(200, "\n".join(GOOD)).complete("m", (1, 2), 2)
    assert (found.ttft_s, found.total_s) == (1.5, 3.0)
    assert (found.prompt_tokens, found.cached_tokens, found.computed_tokens) == (10, 7, 3)
    assert found.completion_tokens == 2


@pytest.mark.parametrize(
    ("status", "text", "sentence"),
    [
        (400, '{"error": "no"}', "HTTP 400"),
        (200, "data: [DONE]", "without tokens or without usage"),
        (200, f"data: {CHUNK}", "without tokens or without usage"),
        (200, 'data: {"error": {"message": "lost"}}', "broke off.*lost"),
    ],
)
def test_what_is_no_answer_is_refused(status: int, text: str, sentence: str) -> None:
    with pytest.raises(RequestRefused, match=sentence):
        client(status, text).complete("m", (1, 2), 2)


def test_the_first_model_is_named() -> None:
    assert client(200, '{"data": [{"id": "a"}, {"id": "b"}]}').first_model() == "a"
    with pytest.raises(RequestRefused, match="serves no model"):
        client(200, '{"data": []}').first_model()


def test_nothing_is_read_beyond_the_end_mark() -> None:
    assert list(events(iter(['data: {"a": 1}', "data: [DONE]", "data: broken"]))) == [{"a": 1}]
