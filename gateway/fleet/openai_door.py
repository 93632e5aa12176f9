"""An ask as a request to another server's OpenAI API, and its events as ours.

    Ask ── body ──▶ POST /v1/chat/completions or /v1/completions, streamed
    data: {...}  ──▶ Output   data: [DONE] ──▶ Done   4xx, 5xx, a cut ──▶ Failed

Such a server names no token ids, so what it began cannot go on elsewhere once a client has some of
it, and it keeps no namespaces apart unless it takes a salt.
"""

from __future__ import annotations

import array
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from gateway.config import ForeignKind
from gateway.errors import (
    ContextLengthExceeded,
    GatewayError,
    InvalidRequest,
    Overloaded,
    WorkerLost,
)
from gateway.request import (
    Ask,
    ChatPrompt,
    Decoding,
    FinishReason,
    Logprob,
    Output,
    PairPrompt,
    TextPrompt,
    TokenLogprobs,
    Usage,
)

# What OpenAI's own API does not know, by our defaults; servers of these kinds take it by this name.
_EXTRAS: dict[str, object] = {
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "stop_token_ids": (),
    "min_tokens": 0,
    "ignore_eos": False,
    "include_stop_str_in_output": False,
}
_KNOWS_EXTRAS = {"vllm": _EXTRAS.keys(), "sglang": _EXTRAS.keys() - {"include_stop_str_in_output"}}


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request."""

    path: str
    body: bytes


def call_of(ask: Ask, model: str, kind: ForeignKind) -> Call:
    """The request for an ask. Raises InvalidRequest for what this kind of server cannot do."""
    fields: dict[str, object] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        **_decoding(ask.decoding, kind),
    }
    if kind == "vllm":
        fields["cache_salt"] = ask.namespace.hex()
    prompt = ask.prompt
    if isinstance(prompt, PairPrompt):
        raise InvalidRequest("The server behind this model is asked to generate only.")
    if isinstance(prompt, ChatPrompt):
        if prompt.template_kwargs:
            fields["chat_template_kwargs"] = msgspec.Raw(prompt.template_kwargs)
        if ask.decoding.top_logprobs is not None:
            fields |= {"logprobs": True, "top_logprobs": ask.decoding.top_logprobs}
        fields["messages"] = msgspec.Raw(prompt.messages)
        return Call("/v1/chat/completions", msgspec.json.encode(fields))
    if ask.decoding.top_logprobs is not None:
        fields["logprobs"] = ask.decoding.top_logprobs
    fields["prompt"] = prompt.text if isinstance(prompt, TextPrompt) else _ids(prompt.token_ids)
    return Call("/v1/completions", msgspec.json.encode(fields))


def _decoding(decoding: Decoding, kind: ForeignKind) -> dict[str, object]:
    sampling, stopping = decoding.sampling, decoding.stopping
    extras: dict[str, object] = {
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "stop_token_ids": stopping.stop_token_ids,
        "min_tokens": stopping.min_tokens,
        "ignore_eos": stopping.ignore_eos,
        "include_stop_str_in_output": stopping.include_stop,
    }
    asked = {name: value for name, value in extras.items() if value != _EXTRAS[name]}
    for name in asked:
        if name not in _KNOWS_EXTRAS.get(kind, ()):
            raise InvalidRequest(
                f"The server behind this model does not take '{name}'.", param=name
            )
    plain: dict[str, object | None] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty or None,
        "frequency_penalty": sampling.frequency_penalty or None,
        "seed": None if sampling.seed is None else sampling.seed % 2**63,
        "logit_bias": {str(key): bias for key, bias in sampling.logit_bias.items()} or None,
        "max_tokens": stopping.max_tokens,
        "stop": list(stopping.stop) or None,
        "n": decoding.n,
    }
    return {name: value for name, value in plain.items() if value is not None} | asked


def _ids(packed: bytes) -> list[int]:
    ids = array.array("i")
    ids.frombytes(packed)
    return ids.tolist()


# ---------------------------------------------------------------------- what comes back


class _Delta(Struct):
    content: str | None = None


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


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event brings: outputs, the request's usage, or an error's text."""

    outputs: tuple[Output, ...] = ()
    usage: Usage | None = None
    error: str | None = None


def piece_of(data: bytes) -> Piece:
    """One event's data. Raises msgspec.DecodeError where it is no chunk."""
    chunk = _decode_chunk(data)
    if chunk.error is not None:
        return Piece(error=bytes(chunk.error).decode("utf-8", "replace"))
    outputs = tuple(output for choice in chunk.choices if (output := _output(choice)) is not None)
    return Piece(outputs, None if chunk.usage is None else _usage(chunk.usage))


def _usage(usage: _Usage) -> Usage:
    details = usage.prompt_tokens_details
    cached = details.cached_tokens or 0 if details else 0
    prompt_tokens = max(usage.prompt_tokens, 0)
    cached = min(max(cached, 0), prompt_tokens)
    return Usage(prompt_tokens, cached, max(usage.completion_tokens or 0, 0))


def _output(choice: _Choice) -> Output | None:
    text = (choice.delta.content if choice.delta else choice.text) or ""
    logprobs = tuple(_token_logprobs(choice.logprobs)) if choice.logprobs else ()
    finish = None
    if choice.finish_reason is not None:
        finish = FinishReason.LENGTH if choice.finish_reason == "length" else FinishReason.STOP
    if not text and not logprobs and finish is None:
        return None
    num_tokens = len(logprobs) or bool(text)
    return Output(choice.index, text, b"", logprobs, finish, unnamed_tokens=num_tokens)


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


class _ErrorObject(Struct):
    message: str = ""
    param: str | None = None
    code: str | int | None = None


class _ErrorBody(Struct):
    """OpenAI's error, or the flat one that some servers send."""

    error: _ErrorObject | None = None
    message: str = ""
    param: str | None = None


def error_of(status: int, body: bytes) -> GatewayError:
    """What a refusal means to us: the request's fault, a full server, or a lost one."""
    try:
        read = msgspec.json.decode(body, type=_ErrorBody)
    except msgspec.DecodeError:
        read = _ErrorBody(message=body.decode("utf-8", "replace"))
    told = read.error or _ErrorObject(read.message, read.param)
    if status in (400, 413, 422):
        long = told.code == "context_length_exceeded" or "maximum context length" in told.message
        kind = ContextLengthExceeded if long else InvalidRequest
        return kind(told.message, param=told.param)
    if status in (429, 503):
        return Overloaded(f"it answered {status}: {told.message}")
    return WorkerLost(f"it answered {status}: {told.message}")
