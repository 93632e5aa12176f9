"""A response's objects and events, as OpenAI has them."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from gateway.http.objects import TokenLogprob

Metadata = dict[str, str] | None


class OutputText(Struct, frozen=True, tag_field="type", tag="output_text"):
    """What the assistant said."""

    text: str
    logprobs: list[TokenLogprob] | UnsetType = UNSET
    annotations: list[None] = []


class ReasoningText(Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    """What the model thought."""

    text: str


class MessageItem(Struct, frozen=True, tag_field="type", tag="message"):
    """An item of the output: text."""

    id: str
    content: list[OutputText]
    status: str
    role: str = "assistant"


class ReasoningItem(Struct, frozen=True, tag_field="type", tag="reasoning"):
    """An item of the output: reasoning."""

    id: str
    content: list[ReasoningText]
    status: str
    summary: list[None] = []


class CallItem(Struct, frozen=True, tag_field="type", tag="function_call"):
    """An item of the output: a call that the client is asked to make."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: str


Item = MessageItem | ReasoningItem | CallItem


class CachedTokens(Struct, frozen=True):
    """How much of the input was not computed again."""

    cached_tokens: int


class ReasoningTokens(Struct, frozen=True):
    """How much of the output was reasoning."""

    reasoning_tokens: int


class ResponseUsage(Struct, frozen=True):
    """Tokens of a response."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class Incomplete(Struct, frozen=True):
    """Why an output is not whole."""

    reason: str = "max_output_tokens"


class ResponseError(Struct, frozen=True):
    """Why there is none."""

    code: str
    message: str


class Response(Struct, frozen=True, kw_only=True):
    """A response; what was asked stands in it again."""

    id: str
    created_at: int
    model: str
    output: list[Item]
    status: str
    object: str = "response"
    error: ResponseError | None = None
    incomplete_details: Incomplete | None = None
    usage: ResponseUsage | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: Metadata = None
    parallel_tool_calls: bool = True
    previous_response_id: None = None
    reasoning: dict[str, str | None] = {}
    service_tier: str = "default"
    store: bool = False
    temperature: float | None = None
    text: dict[str, Any] = {}
    tool_choice: Any = "auto"
    tools: list[Any] = []
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: str = "disabled"
    user: str | None = None


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a stream; the fields that a type has are set."""

    type: str
    sequence_number: int
    response: Response | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    item: Item | UnsetType = UNSET
    part: OutputText | ReasoningText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    logprobs: list[TokenLogprob] | UnsetType = UNSET
