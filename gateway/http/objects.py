"""OpenAI's response objects, and logprobs in its forms."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from msgspec import UNSET, Struct, UnsetType

from gateway.request import Logprob, PromptScore, TokenLogprobs, Usage

# OpenAI's stand-in for minus infinity, which JSON lacks.
_LOWEST_LOGPROB = -9999.0


class PromptTokensDetails(Struct, frozen=True, gc=False):
    """How much of the prompt was not computed again."""

    cached_tokens: int


class UsageObject(Struct, frozen=True):
    """OpenAI's usage object."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class TopLogprob(Struct, frozen=True):
    """An alternative to a token."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct, frozen=True):
    """A sampled token with its alternatives."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct, frozen=True):
    """Logprobs of a choice, or of what one event adds to it."""

    content: list[TokenLogprob]
    refusal: None = None


class FunctionPiece(Struct, frozen=True):
    """What an event adds to a call. name: with its first one."""

    name: str | UnsetType = UNSET
    arguments: str = ""


class ToolCallPiece(Struct, frozen=True):
    """What an event adds to a choice's call number `index`. id, type: with its first one."""

    index: int
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionPiece = FunctionPiece()


class Delta(Struct, frozen=True):
    """What an event adds to a choice. reasoning_content: beyond OpenAI, as vLLM and SGLang do."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: tuple[ToolCallPiece, ...] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True):
    """One choice of a chunk."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None


class Chunk(Struct, frozen=True):
    """One event of a streamed chat completion."""

    id: str
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: UsageObject | UnsetType | None = UNSET
    object: str = "chat.completion.chunk"
    service_tier: str | UnsetType = UNSET


class Function(Struct, frozen=True):
    """What is called; arguments are JSON in a string."""

    name: str
    arguments: str


class ToolCall(Struct, frozen=True):
    """A call that the client is asked to make."""

    id: str
    function: Function
    type: str = "function"


class ChatMessage(Struct, frozen=True):
    """What the assistant said. content None: it only called tools."""

    content: str | None
    role: str = "assistant"
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class PromptLogprob(Struct, frozen=True):
    """One prompt token, in the form of vLLM."""

    logprob: float
    rank: int
    decoded_token: str


# By the token's id; None for the first one.
PromptLogprobs = list[dict[str, PromptLogprob] | None]


class ChatChoice(Struct, frozen=True):
    """One choice of a chat completion."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class ChatCompletion(Struct, frozen=True):
    """A chat completion."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageObject
    object: str = "chat.completion"
    service_tier: str | UnsetType = UNSET


class LegacyLogprobs(Struct, frozen=True):
    """Logprobs as the completions endpoint gives them: lists side by side.

    None stands for a prompt's first token, whose probability nothing gives.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(Struct, frozen=True):
    """One choice of a completion, or what one event adds to it.

    prompt_logprobs: beyond OpenAI, in the form of vLLM; with the first choice of each prompt.
    """

    index: int
    text: str
    logprobs: LegacyLogprobs | None = None
    finish_reason: str | None = None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(Struct, frozen=True):
    """A completion, or one event of a streamed one."""

    id: str
    created: int
    model: str
    choices: tuple[CompletionChoice, ...]
    usage: UsageObject | UnsetType | None = UNSET
    object: str = "text_completion"


class Offset:
    """Where in its choice's text the next token begins, counted in characters."""

    def __init__(self) -> None:
        """At the text's beginning."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._chars = 0

    def pass_over(self, token: bytes) -> int:
        """Where this token begins."""
        begin = self._chars
        self._chars += len(self._decoder.decode(token))
        return begin


def usage_object(usage: Usage) -> UsageObject:
    """In OpenAI's form."""
    return UsageObject(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        PromptTokensDetails(usage.cached_tokens),
    )


def chat_logprobs(entries: Iterable[TokenLogprobs]) -> ChatLogprobs:
    """As chat completions give them."""
    return ChatLogprobs(
        [
            TokenLogprob(
                text_of(entry.sampled.token),
                value_of(entry.sampled),
                list(entry.sampled.token),
                [
                    TopLogprob(text_of(top.token), value_of(top), list(top.token))
                    for top in entry.top
                ],
            )
            for entry in entries
        ]
    )


def prompt_logprobs(scores: Iterable[PromptScore]) -> PromptLogprobs:
    """Nothing for the first token, whose probability nothing before it gives."""
    entries: PromptLogprobs = []
    for score in scores:
        if not score.rank:
            entries.append(None)
            continue
        logprob = max(score.logprob, _LOWEST_LOGPROB)
        entry = PromptLogprob(logprob, score.rank, text_of(score.token))
        entries.append({str(score.token_id): entry})
    return entries


def text_of(token: bytes) -> str:
    """A token's bytes as text; what is no whole character shows as the replacement character."""
    return token.decode("utf-8", "replace")


def value_of(entry: Logprob) -> float:
    """A logprob that JSON can hold."""
    return max(entry.logprob, _LOWEST_LOGPROB)
