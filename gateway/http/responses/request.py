"""The body of POST /v1/responses, as the chat that it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.http.decoding import check_nodes, decoded, invalid
from gateway.http.messages import Message
from gateway.http.openai import (
    ChatRequest,
    Count,
    Effort,
    Fraction,
    Label,
    Tier,
    check_chat,
    refuse_others,
)
from gateway.http.responses.items import messages_of
from gateway.http.structured import JsonSchemaFormat, ResponseFormat
from gateway.http.tools import FunctionDefinition, FunctionName, Tool

_LOGPROBS = "message.output_text.logprobs"


class ResponseTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function that the client would call."""

    name: FunctionName
    type: Literal["function"]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the answer's text is."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | UnsetType = UNSET
    description: str | None = None
    strict: bool | None = None


class TextSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the answer's text is made."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """effort: told to the chat template. A summary is never made: the reasoning itself is shown."""

    effort: Effort | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponseStreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """include_obfuscation only pads OpenAI's own events; it is taken and not used."""

    include_obfuscation: bool | None = None


class ResponsesRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body. Nothing is stored: what refers to an earlier response is refused by name."""

    model: Label
    input: str | Annotated[list[dict[str, Any]], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: TextSettings | None = None
    reasoning: ReasoningSettings | None = None
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] | None = (
        None
    )
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    metadata: dict[str, str] | None = None
    service_tier: Tier | None = None
    prompt_cache_key: Label | None = None
    user: Any = None
    # Taken and not used.
    store: Any = None
    safety_identifier: Any = None
    prompt_cache_retention: Any = None
    prompt_cache_options: Any = None
    # Of the protocol, without effect here: refused.
    previous_response_id: Any = None
    conversation: Any = None
    background: Any = None
    truncation: Any = None
    max_tool_calls: Any = None
    prompt: Any = None
    context_management: Any = None
    moderation: Any = None


# What a refused field may say without asking for anything.
REFUSED: dict[str, tuple[Any, ...]] = {
    "previous_response_id": (),
    "conversation": (),
    "background": (False,),
    "truncation": ("disabled",),
    "max_tool_calls": (),
    "prompt": (),
    "context_management": (),
    "moderation": (),
}
_decoder = msgspec.json.Decoder(ResponsesRequest)


def read_response(body: bytes, limits: LimitConfig) -> tuple[ResponsesRequest, ChatRequest]:
    """The body within the limits, and the chat that it asks for. Raises InvalidRequest."""
    check_nodes(body, limits)
    request = decoded(_decoder, body)
    refuse_others(request, REFUSED)
    if request.stream_options is not None and not request.stream:
        raise invalid("stream_options", "only allowed when 'stream' is true")
    wants_logprobs = request.top_logprobs is not None or _LOGPROBS in (request.include or ())
    reasoning = request.reasoning or ReasoningSettings()
    chat = ChatRequest(
        model=request.model,
        messages=_messages(request),
        temperature=request.temperature,
        top_p=request.top_p,
        max_completion_tokens=request.max_output_tokens,
        logprobs=wants_logprobs or None,
        top_logprobs=request.top_logprobs,
        tools=[_tool(tool) for tool in request.tools or ()],
        tool_choice=_tool_choice(request.tool_choice),
        parallel_tool_calls=request.parallel_tool_calls,
        response_format=_format(request.text),
        reasoning_effort=reasoning.effort,
        service_tier=request.service_tier,
        prompt_cache_key=request.prompt_cache_key,
        user=request.user,
        stream=request.stream,
    )
    with own_names():
        check_chat(chat, limits)
    return request, chat


@contextmanager
def own_names() -> Iterator[None]:
    """Refusals of the chat name the fields as they are called here."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(error.detail, param=_place(error.param), code=error.code) from error


def _place(param: str | None) -> str | None:
    """What the chat's field is called here."""
    if param is None:
        return None
    for chat, own in (("messages", "input"), ("response_format.json_schema", "text.format")):
        if param.startswith(chat):
            return own
    return param.replace("].function", "]")


def _messages(request: ResponsesRequest) -> list[Message]:
    lead = [] if request.instructions is None else [Message("system", request.instructions)]
    if isinstance(request.input, str):
        return [*lead, Message("user", request.input)]
    told = lead + messages_of(request.input)
    if not told:
        raise invalid("input", "expected a message, or the output of a call")
    return told


def _tool(tool: ResponseTool) -> Tool:
    return Tool(
        function=FunctionDefinition(
            tool.name,
            UNSET if tool.description is None else tool.description,
            UNSET if tool.parameters is None else tool.parameters,
            UNSET if tool.strict is None else tool.strict,
        )
    )


def _tool_choice(value: Any) -> Any:
    """The named form with the name where a chat has it."""
    if isinstance(value, dict) and value.get("type") == "function" and "name" in value:
        others = value.keys() - {"type", "name"}
        if others:
            raise invalid("tool_choice", f"{min(others)!r} is unknown")
        return {"type": "function", "function": {"name": value["name"]}}
    return value


def _format(text: TextSettings | None) -> ResponseFormat | None:
    asked = text.format if text is not None else None
    if asked is None:
        return None
    if asked.type != "json_schema":
        if asked.name is not None or asked.schema is not UNSET:
            raise invalid("text.format", "a name and a schema go with the type 'json_schema' only")
        return ResponseFormat(asked.type)
    if asked.name is None or asked.schema is UNSET:
        raise invalid("text.format", "the type 'json_schema' needs a name and a schema")
    return ResponseFormat("json_schema", JsonSchemaFormat(asked.name, asked.schema))
