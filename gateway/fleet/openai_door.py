"""An ask as a request to another server's OpenAI API, and its events as ours.

    Ask ── body ──▶ POST /v1/chat/completions or /v1/completions, streamed
    data: {...}  ──▶ Output   data: [DONE] ──▶ Done   4xx, 5xx, a cut ──▶ Failed

Such a server names no token ids, so what it began cannot go on elsewhere once a client has some of
it, and it keeps no namespaces apart unless it takes a salt.
"""

from __future__ import annotations

import array
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
from gateway.fleet.foreign_pieces import kind_of
from gateway.request import (
    Ask,
    ChatPrompt,
    Constraint,
    Decoding,
    Dflash,
    Language,
    PairPrompt,
    ProgramPrompt,
    TextPrompt,
    Want,
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
    if isinstance(prompt, PairPrompt | ProgramPrompt) or ask.want is not Want.GENERATION:
        raise InvalidRequest("The server behind this model is asked to generate only.")
    if isinstance(prompt, ChatPrompt):
        if prompt.template_kwargs:
            fields["chat_template_kwargs"] = msgspec.Raw(prompt.template_kwargs)
        if ask.decoding.top_logprobs is not None:
            fields |= {"logprobs": True, "top_logprobs": ask.decoding.top_logprobs}
        fields["messages"] = msgspec.Raw(prompt.messages)
        fields |= _tools(prompt)
        return Call("/v1/chat/completions", msgspec.json.encode(fields))
    if ask.decoding.top_logprobs is not None:
        fields["logprobs"] = ask.decoding.top_logprobs
    fields["prompt"] = prompt.text if isinstance(prompt, TextPrompt) else _ids(prompt.token_ids)
    return Call("/v1/completions", msgspec.json.encode(fields))


def _tools(prompt: ChatPrompt) -> dict[str, object]:
    if not prompt.tools:
        return {}
    choice = prompt.tool_choice
    told: object = choice.mode.value.lower()
    if choice.name:
        told = {"type": "function", "function": {"name": choice.name}}
    return {
        "tools": msgspec.Raw(prompt.tools),
        "tool_choice": told,
        "parallel_tool_calls": not choice.single,
    }


def _structure(constraint: Constraint, kind: ForeignKind) -> dict[str, object]:
    """A constraint as this kind of server reads it. Raises InvalidRequest."""
    if not constraint.choices and constraint.language is Language.JSON_SCHEMA:
        schema = {"name": "answer", "schema": msgspec.Raw(constraint.source.encode())}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if kind == "vllm":
        if constraint.choices:
            return {"structured_outputs": {"choice": constraint.choices}}
        return {"structured_outputs": {constraint.language.value: constraint.source}}
    if kind == "sglang" and constraint.language is Language.REGEX and not constraint.choices:
        return {"regex": constraint.source}
    raise InvalidRequest(
        "The server behind this model takes a JSON schema only.", param="structured_outputs"
    )


def _decoding(decoding: Decoding, kind: ForeignKind) -> dict[str, object]:
    sampling, stopping = decoding.sampling, decoding.stopping
    if decoding.echo or decoding.score_prompt:
        raise InvalidRequest("The server behind this model does not take 'echo'.", param="echo")
    if decoding.dflash not in (None, Dflash.OFF):
        raise InvalidRequest("The server behind this model does not take 'dflash'.", param="dflash")
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
    if decoding.constraint is not None:
        asked |= _structure(decoding.constraint, kind)
    return {name: value for name, value in plain.items() if value is not None} | asked


def _ids(packed: bytes) -> list[int]:
    ids = array.array("i")
    ids.frombytes(packed)
    return ids.tolist()


class _ErrorObject(Struct):
    message: str = ""
    param: str | None = None
    code: str | int | None = None
    type: str | None = None


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
        return Overloaded(f"it answered {status}{kind_of(msgspec.json.encode(told))}")
    return WorkerLost(f"it answered {status}{kind_of(msgspec.json.encode(told))}")
