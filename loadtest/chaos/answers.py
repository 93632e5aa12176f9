"""One request to its end: what came, and how it ended. Nothing is judged here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from loadtest.chaos.asks import Ask
from pando.programs.wire import event_data

# Longer than anything that a fault does to a request: who waits for longer waits for ever.
PATIENCE_S = 150.0


@dataclass(slots=True)
class Told:
    """What a client got. choices: text, calls, logprobs and finish of each, as they come together.

    status: 0 where no answer began. error: an error body, or an error event, or what broke off.
    broken: the connection did not come about, or ended before the answer did.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: int = 0
    done: bool = False
    broken: bool = False
    hung_up: bool = False
    error: str = ""

    @property
    def body(self) -> str:
        """All that has to be the same whenever it is asked."""
        return json.dumps([self.choices, self.tokens], sort_keys=True)

    def piece(self, chunk: dict[str, Any]) -> None:
        """Adds an event's data, or a whole answer."""
        if "error" in chunk:
            self.error = json.dumps(chunk["error"])
        elif chunk.get("choices") is not None:
            for choice in chunk["choices"]:
                self._choice(choice)
        else:
            self._program(chunk)
        if usage := chunk.get("usage"):
            self.tokens = usage["completion_tokens"]

    def _choice(self, choice: dict[str, Any]) -> None:
        kept = self.choices.setdefault(
            str(choice["index"]), {"text": "", "calls": {}, "logprobs": [], "finish": None}
        )
        said = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
        kept["text"] += said.get("content") or ""
        for number, call in enumerate(said.get("tool_calls") or []):
            own = kept["calls"].setdefault(str(call.get("index", number)), ["", ""])
            own[0] += call["function"].get("name") or ""
            own[1] += call["function"].get("arguments") or ""
        kept["logprobs"] += _logprobs(choice.get("logprobs"))
        kept["finish"] = choice.get("finish_reason") or kept["finish"]

    def _program(self, chunk: dict[str, Any]) -> None:
        if "variables" in chunk:
            self.choices["variables"] = chunk["variables"]

    @property
    def finished(self) -> bool:
        """Whether every choice says why it ended."""
        told = self.choices.items()
        return bool(told) and all(name == "variables" or one["finish"] for name, one in told)


def _logprobs(given: Any) -> list[float]:
    if not given:
        return []
    if "content" in given:
        return [entry["logprob"] for entry in given["content"] or []]
    return list(given["token_logprobs"])


async def ask_once(
    client: httpx.AsyncClient, url: str, ask: Ask, hang_up_after: int | None = None
) -> Told:
    """What came of it; never raises for what the server does.

    hang_up_after: events of a stream, or tenths of a second, after which the client has enough.
    """
    told = Told()
    try:
        async with asyncio.timeout(PATIENCE_S):
            if ask.streams:
                await _stream(client, url, ask, told, hang_up_after)
            else:
                await _whole(client, url, ask, told, hang_up_after)
    except TimeoutError:
        told.error = f"no end within {PATIENCE_S:.0f} s"
    except httpx.TransportError as error:
        told.broken, told.error = True, repr(error)
    except (ValueError, KeyError) as error:
        told.error = f"what came can't be read: {error!r}"
    return told


async def _whole(
    client: httpx.AsyncClient, url: str, ask: Ask, told: Told, hang_up_after: int | None
) -> None:
    request = client.post(url + ask.path, json=ask.body)
    if hang_up_after is None:
        answer = await request
    else:
        try:
            async with asyncio.timeout(hang_up_after / 10):
                answer = await request
        except TimeoutError:
            told.hung_up = True
            return
    told.status, told.headers = answer.status_code, answer.headers
    told.piece(answer.json())
    told.done = True


async def _stream(
    client: httpx.AsyncClient, url: str, ask: Ask, told: Told, hang_up_after: int | None
) -> None:
    num_events = 0
    async with client.stream("POST", url + ask.path, json=ask.body) as answer:
        told.status, told.headers = answer.status_code, answer.headers
        if answer.status_code != 200:
            told.piece(json.loads(await answer.aread()))
            told.done = True
            return
        async for data in event_data(answer.aiter_bytes()):
            if data == b"[DONE]":
                told.done = True
                continue
            told.piece(json.loads(data))
            num_events += 1
            if num_events == hang_up_after:
                told.hung_up = True
                return
