"""OpenAI's request types, and what is refused by name.

Bodies are decoded and checked by msgspec in one pass. An unknown field, a field of the protocol
that does nothing here, a wrong type and a value out of range are each refused with the field's
name. Fields that only inform the operator are taken and not used: `IGNORED`.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest

Fraction = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Label = Annotated[str, Meta(min_length=1, max_length=256)]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """include_obfuscation only pads OpenAI's own events; it is taken and not used."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class FunctionCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that the assistant made earlier; arguments are JSON in a string."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Part of the history that the chat template renders."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chat message. A content list holds text parts only."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    annotations: Raw = Raw()
    audio: Raw = Raw()
    function_call: Raw = Raw()


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
    # Taken and not used.
    user: Raw = Raw()
    metadata: Raw = Raw()
    store: Raw = Raw()
    service_tier: Raw = Raw()
    safety_identifier: Raw = Raw()
    prompt_cache_retention: Raw = Raw()
    prompt_cache_options: Raw = Raw()


class ChatRequest(SharedFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    # Of the protocol, without effect here: refused.
    tools: Raw = Raw()
    tool_choice: Raw = Raw()
    parallel_tool_calls: Raw = Raw()
    functions: Raw = Raw()
    function_call: Raw = Raw()
    response_format: Raw = Raw()
    modalities: Raw = Raw()
    audio: Raw = Raw()
    prediction: Raw = Raw()
    reasoning_effort: Raw = Raw()
    verbosity: Raw = Raw()
    web_search_options: Raw = Raw()
    moderation: Raw = Raw()


class CompletionRequest(SharedFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/completions. The prompt's elements are all of one kind."""

    prompt: str | list[str | TokenId | list[TokenId]]
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    echo: Raw = Raw()
    best_of: Raw = Raw()
    suffix: Raw = Raw()


# What a refused field may say without asking for anything.
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none",),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "moderation": (),
    "echo": (False,),
    "best_of": (1,),
    "suffix": ("",),
}
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
# A larger body is not read again only to say where half of a surrogate pair stands.
_MAX_TRACED_BYTES = 256 * 1024
_FORBIDDEN_KWARGS = frozenset({"messages", "tools", "chat_template", "add_generation_prompt"})

_chat_decoder = msgspec.json.Decoder(ChatRequest)
_completion_decoder = msgspec.json.Decoder(CompletionRequest)
Request = TypeVar("Request", bound=SharedFields)


def read_chat(body: bytes, limits: LimitConfig) -> ChatRequest:
    """The body as a chat request within the limits. Raises InvalidRequest."""
    _check_nodes(body, limits)
    request = _decode(_chat_decoder, body)
    _check_shared(request, limits)
    if len(request.messages) > limits.messages:
        raise _invalid("messages", f"at most {limits.messages} messages are allowed")
    parts = (len(one.content) for one in request.messages if isinstance(one.content, list))
    if sum(parts) > limits.content_parts:
        raise _invalid("messages", f"at most {limits.content_parts} text parts are allowed")
    for position, message in enumerate(request.messages):
        _check_message(f"messages[{position}]", message)
    if request.top_logprobs is not None and not request.logprobs:
        raise _invalid("top_logprobs", "only allowed when 'logprobs' is true")
    kwargs = request.chat_template_kwargs or {}
    for name in sorted(_FORBIDDEN_KWARGS & kwargs.keys()):
        raise _invalid(f"chat_template_kwargs.{name}", "this variable is the gateway's own")
    _check_depth("chat_template_kwargs", kwargs, limits.json_depth)
    return request


def read_completion(body: bytes, limits: LimitConfig) -> CompletionRequest:
    """The body as a completion request within the limits. Raises InvalidRequest."""
    _check_nodes(body, limits, ids=limits.prompt_ids)
    request = _decode(_completion_decoder, body)
    _check_shared(request, limits)
    prompt = request.prompt
    if isinstance(prompt, list):
        if len({type(element) for element in prompt}) != 1:
            raise _invalid("prompt", "expected strings, token ids, or lists of token ids")
        if not isinstance(prompt[0], int) and len(prompt) > limits.prompts:
            raise _invalid("prompt", f"at most {limits.prompts} prompts are allowed")
        if sum(map(_num_ids, prompt)) > limits.prompt_ids:
            raise _invalid("prompt", f"at most {limits.prompt_ids} token ids are allowed")
    return request


def _num_ids(element: str | int | list[int]) -> int:
    return len(element) if isinstance(element, list) else isinstance(element, int)


def _check_nodes(body: bytes, limits: LimitConfig, ids: int = 0) -> None:
    """Refuse a body of too many small things before they become objects. ids: further numbers.

    Strings are looked at one by one, and all else is counted between them: a comma in a text is no
    member. A string without an end reaches to the body's end, so nothing is looked at twice.
    """
    num_members = _count_members(body, 0, len(body))
    if num_members + body.count(b'"') <= limits.json_nodes:
        return
    num_strings = 0
    for string in _STRING.finditer(body):
        num_strings += 1
        num_members -= _count_members(body, *string.span())
        if num_strings > limits.json_nodes:
            break
    if num_strings > limits.json_nodes or num_strings + num_members > limits.json_nodes + ids:
        raise _invalid(None, f"at most {limits.json_nodes} strings and members are allowed")


def _count_members(body: bytes, start: int, end: int) -> int:
    return sum(body.count(sign, start, end) for sign in (b",", b"{", b"["))


def _decode(decoder: msgspec.json.Decoder[Request], body: bytes) -> Request:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _explain(str(error)) from error
    except RecursionError as error:
        raise InvalidRequest("The body is nested too deeply.", code="invalid_json") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise _explain_json(body, error) from error


def _check_shared(request: SharedFields, limits: LimitConfig) -> None:
    for name, harmless in _HARMLESS.items():
        raw = getattr(request, name, None)
        if raw and bytes(raw) != b"null" and not _is_one_of(raw, harmless):
            raise InvalidRequest(
                f"Unsupported parameter: '{name}' is not supported here with this value.",
                param=name,
                code="unsupported_parameter",
            )
    if (request.n or 1) > limits.choices:
        raise _invalid("n", f"expected at most {limits.choices}")
    if request.stream_options is not None and not request.stream:
        raise _invalid("stream_options", "only allowed when 'stream' is true")
    if request.prompt_logprobs:
        raise _invalid("prompt_logprobs", "expected 0: the prompt's tokens without alternatives")
    if request.prompt_logprobs is not None and request.stream:
        raise _invalid("prompt_logprobs", "not allowed when 'stream' is true")
    _check_stop(request, limits)
    bias = request.logit_bias or {}
    if len(bias) > limits.logit_bias:
        raise _invalid("logit_bias", f"at most {limits.logit_bias} entries are allowed")
    for key in bias:
        if not re.fullmatch(r"[0-9]{1,10}", key) or int(key) >= 2**31:
            raise _invalid("logit_bias", f"{key!r} is no token id")


def _check_stop(request: SharedFields, limits: LimitConfig) -> None:
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if len(stops) > limits.stop_strings:
        raise _invalid("stop", f"at most {limits.stop_strings} strings are allowed")
    for position, stop in enumerate(stops):
        if not 1 <= len(stop) <= limits.stop_string_chars:
            raise _invalid(
                "stop" if isinstance(request.stop, str) else f"stop[{position}]",
                f"expected 1 to {limits.stop_string_chars} characters",
            )
    if len(request.stop_token_ids or ()) > limits.stop_token_ids:
        raise _invalid("stop_token_ids", f"at most {limits.stop_token_ids} ids are allowed")


def _check_message(path: str, message: Message) -> None:
    for name in ("audio", "function_call"):
        raw = getattr(message, name)
        if raw and bytes(raw) != b"null":
            raise InvalidRequest(
                f"Unsupported parameter: '{path}.{name}' is not supported here.",
                param=f"{path}.{name}",
                code="unsupported_parameter",
            )
    if message.role == "tool" and message.tool_call_id is None:
        raise _invalid(f"{path}.tool_call_id", "a message of the role 'tool' needs it")
    if message.tool_calls and message.role != "assistant":
        raise _invalid(f"{path}.tool_calls", "only a message of the role 'assistant' has them")
    if message.content is None and not (message.role == "assistant" and message.tool_calls):
        raise _invalid(f"{path}.content", "expected a string or a list of text parts")
    if isinstance(message.content, list):
        for position, part in enumerate(message.content):
            _check_part(f"{path}.content[{position}]", part)


def _check_part(path: str, part: dict[str, Any]) -> None:
    if part.get("type") != "text":
        raise InvalidRequest(
            f"Unsupported value: '{path}.type' is {part.get('type')!r:.64}, not 'text'.",
            param=f"{path}.type",
            code="unsupported_value",
        )
    if not isinstance(part.get("text"), str):
        raise _invalid(f"{path}.text", "expected a string")
    for name in part.keys() - {"type", "text"}:
        raise _unknown(f"{path}.{name}")


def _check_depth(path: str, value: object, depth: int) -> None:
    if depth < 0:
        raise _invalid(path, "nested too deeply")
    members = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for member in members:  # type: ignore[attr-defined]
            _check_depth(path, member, depth - 1)


def _is_one_of(raw: Raw, values: tuple[Any, ...]) -> bool:
    try:
        return any(value == msgspec.json.decode(raw) for value in values)
    except (msgspec.DecodeError, RecursionError):
        return False


def _explain(message: str) -> InvalidRequest:
    """msgspec's `... - at `$.a[0].b`` with the path as param."""
    rule, _, path = message.rpartition(" - at `$")
    rule, path = (rule, path.rstrip("`").removeprefix(".")) if rule else (message, "")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", rule, re.DOTALL)
    if unknown:
        return _unknown(f"{path}.{unknown[1]}" if path else unknown[1])
    missing = re.fullmatch(r"Object missing required field `(.*)`", rule)
    if missing:
        field = f"{path}.{missing[1]}" if path else missing[1]
        return InvalidRequest(
            f"Missing required parameter: '{field}'.",
            param=field,
            code="missing_required_parameter",
        )
    return _invalid(path or None, rule[0].lower() + rule[1:])


def _explain_json(body: bytes, error: Exception) -> InvalidRequest:
    """Why a body is no JSON; half a surrogate pair is traced to its field."""
    path = None
    if len(body) <= _MAX_TRACED_BYTES:
        with suppress(ValueError, RecursionError):
            path = _lone_surrogate("", json.loads(body))
    if path is not None:
        return _invalid(path, "half of a surrogate pair is no text")
    return InvalidRequest(f"The body is not valid JSON in UTF-8: {error}", code="invalid_json")


def _lone_surrogate(path: str, value: object) -> str | None:
    if isinstance(value, str):
        return path if re.search("[\ud800-\udfff]", value) else None
    if isinstance(value, dict):
        members = [(f"{path}.{key}".lstrip("."), member) for key, member in value.items()]
    elif isinstance(value, list):
        members = [(f"{path}[{position}]", member) for position, member in enumerate(value)]
    else:
        return None
    found = (_lone_surrogate(*member) for member in members)
    return next((inner for inner in found if inner is not None), None)


def _unknown(path: str) -> InvalidRequest:
    return InvalidRequest(
        f"Unknown parameter: '{path:.256}'.", param=path[:256], code="unknown_parameter"
    )


def _invalid(path: str | None, rule: str) -> InvalidRequest:
    where = f"'{path}'" if path else "the body"
    return InvalidRequest(f"Invalid value for {where}: {rule}.", param=path)
