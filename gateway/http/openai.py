"""OpenAI's request types, and what is refused by name.

Bodies are decoded and checked by msgspec in one pass. An unknown field, a field of the protocol
that does nothing here, a wrong type and a value out of range are each refused with the field's
name. Fields that only inform the operator are taken and not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.http.decoding import check_depth, check_nodes, decoded, invalid
from gateway.http.messages import Message, check_messages
from gateway.http.prompts import Prompts, TokenId, check_prompts
from gateway.http.structured import ResponseFormat, StructuredOutputs
from gateway.http.tools import Tool, check_tools, tool_choice_of
from gateway.request import Dflash

Fraction = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Label = Annotated[str, Meta(min_length=1, max_length=256)]
Tier = Literal["auto", "default", "flex", "priority", "scale"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """include_obfuscation only pads OpenAI's own events; it is taken and not used."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class SharedFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both endpoints take. None: the default, which is OpenAI's."""

    model: Label
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    n: Annotated[int, Meta(ge=1)] | None = None
    stop: str | list[str] | None = None
    max_tokens: Count | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prompt_cache_key: Label | None = None
    # Beyond OpenAI, as other servers name them.
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Fraction | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    include_stop_str_in_output: bool | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    structured_outputs: StructuredOutputs | None = None
    service_tier: Tier | None = None
    dflash: Dflash | None = None
    user: Any = None
    # Taken and not used.
    metadata: Any = None
    store: Any = None
    safety_identifier: Any = None
    prompt_cache_retention: Any = None
    prompt_cache_options: Any = None


class ChatRequest(SharedFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None
    # Beyond OpenAI: whether reasoning stands apart from content; true by default.
    separate_reasoning: bool | None = None
    # Of the protocol, without effect here: refused.
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    verbosity: Any = None
    web_search_options: Any = None
    moderation: Any = None


class CompletionRequest(SharedFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/completions. The prompt's elements are all of one kind.

    max_tokens may be 0 with echo: the prompt is scored, and nothing is made.
    """

    prompt: Prompts
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    echo: bool | None = None
    best_of: Annotated[int, Meta(ge=1)] | None = None
    suffix: Any = None


# What a refused field may say without asking for anything.
REFUSED: dict[str, tuple[Any, ...]] = {
    "functions": ([],),
    "function_call": ("none",),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "verbosity": ("medium",),
    "web_search_options": (),
    "moderation": (),
    "suffix": ("",),
}
_FORBIDDEN_KWARGS = frozenset({"messages", "tools", "chat_template", "add_generation_prompt"})

_chat_decoder = msgspec.json.Decoder(ChatRequest)
_completion_decoder = msgspec.json.Decoder(CompletionRequest)


def read_chat(body: bytes, limits: LimitConfig) -> ChatRequest:
    """The body as a chat request within the limits. Raises InvalidRequest."""
    check_nodes(body, limits)
    request = decoded(_chat_decoder, body)
    check_chat(request, limits)
    return request


def check_chat(request: ChatRequest, limits: LimitConfig) -> None:
    """Refuse what is beyond the limits, or makes no sense together. Raises InvalidRequest."""
    _check_shared(request, limits)
    check_messages(request.messages, limits)
    check_tools(request.tools or [], limits)
    tool_choice_of(request.tool_choice, request.tools or [], request.parallel_tool_calls)
    if request.top_logprobs is not None and not request.logprobs:
        raise invalid("top_logprobs", "only allowed when 'logprobs' is true")
    kwargs = request.chat_template_kwargs or {}
    for name in sorted(_FORBIDDEN_KWARGS & kwargs.keys()):
        raise invalid(f"chat_template_kwargs.{name}", "this variable is the gateway's own")
    check_depth("chat_template_kwargs", kwargs, limits.json_depth)


def read_completion(body: bytes, limits: LimitConfig) -> CompletionRequest:
    """The body as a completion request within the limits. Raises InvalidRequest."""
    check_nodes(body, limits, ids=limits.prompt_ids)
    request = decoded(_completion_decoder, body)
    _check_shared(request, limits)
    check_prompts("prompt", request.prompt, limits.prompts, limits.prompt_ids)
    _check_echo(request)
    _check_best_of(request, limits)
    return request


def _check_echo(request: CompletionRequest) -> None:
    if request.max_tokens == 0 and not request.echo:
        raise invalid("max_tokens", "expected at least 1, or 'echo'")
    if request.echo and request.stream and max(request.n or 1, request.best_of or 1) > 1:
        raise invalid("echo", "not allowed with several choices when 'stream' is true")
    if request.echo and (request.logprobs or 0) > 1:
        raise invalid("logprobs", "expected 0 or 1 with 'echo': the prompt has one alternative")


def _check_best_of(request: CompletionRequest, limits: LimitConfig) -> None:
    best_of, n = request.best_of, request.n or 1
    if best_of is None:
        return
    if not n <= best_of <= limits.choices:
        raise invalid("best_of", f"expected n, {n}, to {limits.choices}")
    if best_of > n and request.stream:
        raise invalid("best_of", "not allowed above n when 'stream' is true")


def _check_shared(request: SharedFields, limits: LimitConfig) -> None:
    refuse_others(request, REFUSED)
    if (request.n or 1) > limits.choices:
        raise invalid("n", f"expected at most {limits.choices}")
    if request.stream_options is not None and not request.stream:
        raise invalid("stream_options", "only allowed when 'stream' is true")
    if request.prompt_logprobs:
        raise invalid("prompt_logprobs", "expected 0: the prompt's tokens without alternatives")
    if request.prompt_logprobs is not None and request.stream:
        raise invalid("prompt_logprobs", "not allowed when 'stream' is true")
    _check_stop(request, limits)
    bias = request.logit_bias or {}
    if len(bias) > limits.logit_bias:
        raise invalid("logit_bias", f"at most {limits.logit_bias} entries are allowed")
    for key in bias:
        if not re.fullmatch(r"[0-9]{1,10}", key) or int(key) >= 2**31:
            raise invalid("logit_bias", f"{key!r} is no token id")


def refuse_others(request: msgspec.Struct, harmless: Mapping[str, tuple[Any, ...]]) -> None:
    """Refuse fields that do nothing here, unless they ask for nothing. Raises InvalidRequest."""
    for name, values in harmless.items():
        value = getattr(request, name, None)
        if value is not None and value not in values:
            raise InvalidRequest(
                f"Unsupported parameter: '{name}' is not supported here with this value.",
                param=name,
                code="unsupported_parameter",
            )


def _check_stop(request: SharedFields, limits: LimitConfig) -> None:
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if len(stops) > limits.stop_strings:
        raise invalid("stop", f"at most {limits.stop_strings} strings are allowed")
    for position, stop in enumerate(stops):
        if not 1 <= len(stop) <= limits.stop_string_chars:
            raise invalid(
                "stop" if isinstance(request.stop, str) else f"stop[{position}]",
                f"expected 1 to {limits.stop_string_chars} characters",
            )
    if len(request.stop_token_ids or ()) > limits.stop_token_ids:
        raise invalid("stop_token_ids", f"at most {limits.stop_token_ids} ids are allowed")
