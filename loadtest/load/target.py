"""One request to a server with OpenAI's API, streamed and timed as its client sees it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from loadtest.errors import RequestRefused
from loadtest.load.prompt import Prompt
from pando.programs.wire import event_data

TIMEOUT_S = 1800.0
WORKER_HEADER = "x-pando-worker"
_END = b"[DONE]"
_ERROR_CHARS = 300
# What of a chat's delta is output.
_OUTPUT = ("content", "reasoning_content", "reasoning", "tool_calls")


@dataclass(frozen=True, slots=True)
class Target:
    """url: without /v1. keys: by tenant; the one of "" is everybody's who has none of their own.

    ignore_eos: asks for as many tokens as wanted, which OpenAI's own API does not know. extra: more
    fields of every body.
    """

    url: str
    model: str
    keys: Mapping[str, str] = field(default_factory=dict)
    ignore_eos: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def headers(self, tenant: str) -> dict[str, str]:
        """Of a tenant's request."""
        key = self.keys.get(tenant) or self.keys.get("")
        return {"authorization": f"Bearer {key}"} if key else {}

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """The whole body, greedy."""
        asked: dict[str, Any] = {
            **prompt.body,
            "model": self.model,
            "max_tokens": prompt.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.ignore_eos:
            asked["ignore_eos"] = True
        return asked | dict(self.extra)


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: Mapping[str, Any] | None = None


class _Cached(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """As the server told it; None: it did not."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None


class _Chunk(msgspec.Struct):
    choices: Sequence[_Choice] | None = None
    usage: Usage | None = None
    error: Any = None


@dataclass(slots=True)
class Answer:
    """What came so far; written by `ask` only. Times by the clock that `ask` was given."""

    began: float
    ended: float = 0.0
    seen: list[float] = field(default_factory=list)
    status: int = 0
    error: str = ""
    usage: Usage = field(default_factory=Usage)
    worker: str = ""
    text: str = ""

    @property
    def cached_tokens(self) -> int | None:
        """As the server told them; None where it did not."""
        details = self.usage.prompt_tokens_details
        return None if details is None else details.cached_tokens


async def ask(
    http: httpx.AsyncClient,
    target: Target,
    prompt: Prompt,
    clock: Callable[[], float] = time.perf_counter,
) -> Answer:
    """Returns what became of it, failures too; an error is its sentence."""
    content = msgspec.json.encode(target.body(prompt))
    headers = target.headers(prompt.tenant) | {"content-type": "application/json"}
    answer = Answer(clock())
    url = f"{target.url.rstrip('/')}{prompt.path}"
    try:
        async with http.stream("POST", url, content=content, headers=headers) as response:
            answer.status = response.status_code
            answer.worker = response.headers.get(WORKER_HEADER, "")
            if response.is_error:
                answer.error = (await response.aread()).decode("utf-8", "replace")[:_ERROR_CHARS]
            else:
                await _read(event_data(response.aiter_bytes()), answer, clock)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        answer.error = f"{type(error).__name__}: {error}"[:_ERROR_CHARS]
    answer.ended = clock()
    return answer


async def _read(events: AsyncIterator[bytes], answer: Answer, clock: Callable[[], float]) -> None:
    texts = []
    ended = False
    async for data in events:
        if data == _END:
            ended = True
            continue
        chunk = msgspec.json.decode(data, type=_Chunk)
        if chunk.error is not None:
            answer.error = str(chunk.error)[:_ERROR_CHARS]
        answer.usage = chunk.usage or answer.usage
        said = _said(chunk)
        if said is not None:
            answer.seen.append(clock())
            texts.append(said)
    answer.text = "".join(texts)
    if not ended and not answer.error:
        answer.error = "the stream ended without [DONE]"


def _said(chunk: _Chunk) -> str | None:
    """The chunk's text, empty for calls and reasoning; None where it has no output."""
    for choice in chunk.choices or ():
        if choice.text:
            return choice.text
        delta = choice.delta or {}
        if any(delta.get(key) for key in _OUTPUT):
            return str(delta.get("content") or "")
    return None


def first_model(url: str, headers: Mapping[str, str]) -> str:
    """Returns the name of the first model that is served there. Raises RequestRefused."""
    try:
        answer = httpx.get(f"{url.rstrip('/')}/v1/models", headers=dict(headers), timeout=30.0)
        answer.raise_for_status()
        return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
        raise RequestRefused(f"{url} names no model: {error}; give one by --model") from error
