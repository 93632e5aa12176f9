"""What is asked under chaos: every kind of request whose answer is known once it was given."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.words import sentence

NEW_TOKENS = 32
_SYSTEMS = 4
_SYSTEM_WORDS = 60
_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
_TOOL = {
    "type": "function",
    "function": {"name": "find_tree", "description": "Finds a tree.", "parameters": _SCHEMA},
}
_SEEDED = {"temperature": 0.9, "top_p": 0.95}
_GREEDY = {"temperature": 0}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. kind: for the report. Its answer is the same whenever it is asked."""

    kind: str
    path: str
    body: Mapping[str, Any]

    @property
    def streams(self) -> bool:
        """Whether the answer comes as events."""
        return bool(self.body.get("stream"))


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    path: str
    settings: Mapping[str, Any]


_CHAT, _COMPLETION = "/v1/chat/completions", "/v1/completions"
_STREAM = {"stream": True, "stream_options": {"include_usage": True}}
_KINDS = (
    _Kind("chat, greedy, stream", _CHAT, {**_GREEDY, **_STREAM, "ignore_eos": True}),
    _Kind("chat, seeded, two choices, stream", _CHAT, {**_SEEDED, **_STREAM, "n": 2}),
    _Kind("completion, greedy", _COMPLETION, {**_GREEDY, "ignore_eos": True}),
    _Kind(
        "completion, seeded, logprobs, stream", _COMPLETION, {**_SEEDED, **_STREAM, "logprobs": 2}
    ),
    _Kind("chat, greedy, logprobs", _CHAT, {**_GREEDY, "logprobs": True, "ignore_eos": True}),
    _Kind(
        "chat, JSON schema",
        _CHAT,
        {
            **_SEEDED,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "tree", "schema": _SCHEMA},
            },
        },
    ),
    _Kind(
        "chat, tool, stream",
        _CHAT,
        {**_GREEDY, **_STREAM, "tools": [_TOOL], "tool_choice": "required"},
    ),
    _Kind(
        "chat, penalties, stop strings, stream",
        _CHAT,
        {
            **_SEEDED,
            **_STREAM,
            "presence_penalty": 0.5,
            "frequency_penalty": 0.3,
            "min_tokens": 8,
            "stop": [" the ", "forest"],
        },
    ),
    _Kind("completion, seeded, three choices", _COMPLETION, {**_SEEDED, "n": 3}),
    _Kind(
        "chat, regex, stream",
        _CHAT,
        {**_SEEDED, **_STREAM, "structured_outputs": {"regex": "(oak|elm) [a-z]{3,20}\\."}},
    ),
    _Kind("program", "/v1/programs", {"heal": False}),
    _Kind("program, stream", "/v1/programs", {"heal": False, "stream": True}),
)


def asks(model: str, count: int, seed: int) -> list[Ask]:
    """So many requests, a kind after the other; some share the beginning of their prompts."""
    rng = random.Random(seed)
    systems = [sentence(rng, _SYSTEM_WORDS) for _ in range(_SYSTEMS)]
    return [_ask(model, number, rng.choice(systems)) for number in range(count)]


def _ask(model: str, number: int, system: str) -> Ask:
    kind = _KINDS[number % len(_KINDS)]
    body: dict[str, Any] = {"model": model, **kind.settings}
    if kind.path == "/v1/programs":
        body |= {
            "program": _program(f"{system}. Story {number} begins:"),
            "sampling": {"seed": number},
        }
        return Ask(kind.name, kind.path, body)
    body |= {"max_tokens": NEW_TOKENS, "seed": number}
    if kind.path == _COMPLETION:
        body["prompt"] = f"{system}. Story {number} begins: once there was"
    else:
        body["messages"] = [
            {"role": "system", "content": f"You tell stories of the {system}."},
            {"role": "user", "content": f"Tell me story {number}, please."},
        ]
    return Ask(kind.name, kind.path, body)


def _program(text: str) -> Sequence[Mapping[str, Any]]:
    branch = [
        {"op": "text", "text": ["\nIts mood is"]},
        {"op": "select", "name": "mood", "choices": [[" calm"], [" wild"], [" sad"]]},
    ]
    other = [{"op": "text", "text": ["\nIts end:"]}, _gen("end")]
    return [
        {"op": "text", "text": [text]},
        _gen("first"),
        {"op": "fork", "branches": [branch, other]},
        {"op": "text", "text": ["\nIn short, ", {"var": "mood"}, ":"]},
        _gen("short"),
    ]


def _gen(name: str) -> Mapping[str, Any]:
    return {"op": "gen", "name": name, "max_tokens": NEW_TOKENS // 2, "stop": ["\n"]}
