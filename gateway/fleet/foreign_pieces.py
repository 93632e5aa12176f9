"""What another server's OpenAI API streams back, as our outputs.

It tells no token ids; the ids of its calls are left out, since an answer gives its calls its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from gateway.request import FinishReason, Logprob, Output, TokenLogprobs, ToolCallDelta, Usage


class _Function(Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(Struct):
    index: int = 0
    function: _Function = msgspec.field(default_factory=_Function)


class _Delta(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _TopLogprob(Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _TokenLogprob(_TopLogprob):
    top_logprobs: list[_TopLogprob] = []


class _Logprobs(Struct):
    """Both forms: a chat's `content`, a completion's lists side by side."""

    content: list[_TokenLogprob] | None = None
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(Struct):
    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Chunk(Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw | None = None


class _Told(Struct):
    code: str | int | None = None
    type: str | None = None


# What names a kind of error: longer ones, or with spaces, are sentences.
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_decode_chunk = msgspec.json.Decoder(_Chunk).decode


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event brings: outputs, the request's usage, or why it ended badly, in our words."""

    outputs: tuple[Output, ...] = ()
    usage: Usage | None = None
    error: str | None = None


def piece_of(data: bytes) -> Piece:
    """One event's data. Raises msgspec.DecodeError where it is no chunk."""
    chunk = _decode_chunk(data)
    if chunk.error is not None:
        return Piece(error=f"its stream ended with an error{kind_of(bytes(chunk.error))}")
    outputs = tuple(output for choice in chunk.choices if (output := _output(choice)) is not None)
    return Piece(outputs, None if chunk.usage is None else _usage(chunk.usage))


def kind_of(error: bytes) -> str:
    """An error object's code or type behind a colon; nothing where it has none that is a word.

    Its sentence may quote the prompt, and so stands in no line of our log.
    """
    try:
        told = msgspec.json.decode(error, type=_Told)
    except msgspec.DecodeError:
        return ""
    words = (str(word) for word in (told.code, told.type) if word is not None)
    return next((f": {word}" for word in words if _WORD.fullmatch(word)), "")


def _usage(usage: _Usage) -> Usage:
    details = usage.prompt_tokens_details
    cached = details.cached_tokens or 0 if details else 0
    prompt_tokens = max(usage.prompt_tokens, 0)
    cached = min(max(cached, 0), prompt_tokens)
    return Usage(prompt_tokens, cached, max(usage.completion_tokens or 0, 0))


def _output(choice: _Choice) -> Output | None:
    delta = choice.delta or _Delta(choice.text)
    text, reasoning = delta.content or "", delta.reasoning_content or delta.reasoning or ""
    calls = tuple(map(_call_delta, delta.tool_calls or ()))
    logprobs = tuple(_token_logprobs(choice.logprobs)) if choice.logprobs else ()
    finish = None
    if choice.finish_reason is not None:
        finish = FinishReason.LENGTH if choice.finish_reason == "length" else FinishReason.STOP
    if not (text or reasoning or calls or logprobs or finish is not None):
        return None
    return Output(
        choice.index,
        text,
        logprobs=logprobs,
        finish_reason=finish,
        unnamed_tokens=len(logprobs) or bool(text or reasoning or calls),
        reasoning=reasoning,
        tool_calls=calls,
    )


def _call_delta(call: _ToolCall) -> ToolCallDelta:
    function = call.function
    return ToolCallDelta(call.index, function.name or "", function.arguments or "")


def _token_logprobs(logprobs: _Logprobs) -> Iterable[TokenLogprobs]:
    if logprobs.content is not None:
        for entry in logprobs.content:
            yield TokenLogprobs(_logprob(entry), tuple(map(_logprob, entry.top_logprobs)))
        return
    tops = logprobs.top_logprobs or [None] * len(logprobs.tokens)
    for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, tops, strict=False):
        others = tuple(Logprob(-1, one, text.encode()) for text, one in (top or {}).items())
        yield TokenLogprobs(Logprob(-1, value or 0.0, token.encode()), others)


def _logprob(entry: _TopLogprob) -> Logprob:
    token = entry.token.encode() if entry.bytes is None else bytes(entry.bytes)
    return Logprob(-1, entry.logprob, token)
