"""The response objects, and their events.

An `Answer` turns a job's outputs into OpenAI's form, all at once or event by event: `whole` for
JSON, `events` and `tail` for a stream. Chat and completions are its two members.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.errors import GatewayError, public_body
from gateway.request import Logprob, Output, PromptScore, TokenLogprobs, Usage

KEEP_ALIVE = b": keep-alive\n\n"
END = b"data: [DONE]\n\n"
# OpenAI's stand-in for minus infinity, which JSON lacks.
_LOWEST_LOGPROB = -9999.0

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Heading:
    """What every object of one answer carries. model: the name that the client asked for."""

    id: str
    created: int
    model: str


class Answer(Protocol):
    """One request's outputs in OpenAI's form."""

    def events(self, outputs: Iterable[Output]) -> bytes:
        """The outputs as events of a stream, in one piece; empty if there is nothing to tell."""
        ...

    def tail(self, usage: Usage) -> bytes:
        """The events after the last output."""
        ...

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """The whole answer as one JSON object."""
        ...


def error_event(error: GatewayError) -> bytes:
    """The last event of a stream that failed."""
    return _event(public_body(error))


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


class Delta(Struct, frozen=True):
    """What an event adds to a choice."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


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


class ChatMessage(Struct, frozen=True):
    """What the assistant said."""

    content: str
    role: str = "assistant"
    refusal: None = None


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


class LegacyLogprobs(Struct, frozen=True):
    """Logprobs as the completions endpoint gives them: lists side by side."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
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


class ChatAnswer:
    """A chat completion. The first event of each choice names the role."""

    def __init__(self, heading: Heading, include_usage: bool):
        self._heading = heading
        self._usage: UnsetType | None = None if include_usage else UNSET
        self._begun: set[int] = set()

    def events(self, outputs: Iterable[Output]) -> bytes:
        """As Answer.events."""
        parts: list[bytes] = []
        for output in outputs:
            if output.choice not in self._begun:
                self._begun.add(output.choice)
                first = Delta(role="assistant", content="")
                parts.append(self._chunk(ChunkChoice(output.choice, first)))
            if output.text or output.logprobs:
                logprobs = _chat_logprobs(output.logprobs) if output.logprobs else None
                delta = Delta(content=output.text)
                parts.append(self._chunk(ChunkChoice(output.choice, delta, logprobs)))
            if output.finish_reason is not None:
                reason = output.finish_reason.value
                parts.append(self._chunk(ChunkChoice(output.choice, Delta(), None, reason)))
        return b"".join(parts)

    def tail(self, usage: Usage) -> bytes:
        """As Answer.tail."""
        if self._usage is UNSET:
            return END
        heading = self._heading
        chunk = Chunk(heading.id, heading.created, heading.model, (), _usage(usage))
        return _event(chunk) + END

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """As Answer.whole."""
        choices = []
        for index, gathered in sorted(_gather(outputs).items()):
            logprobs = _chat_logprobs(gathered.logprobs) if gathered.logprobs else None
            message = ChatMessage("".join(gathered.texts))
            choices.append(
                ChatChoice(
                    index, message, logprobs, gathered.finish_reason, gathered.prompt_logprobs
                )
            )
        heading = self._heading
        return _encode(
            ChatCompletion(heading.id, heading.created, heading.model, choices, _usage(usage))
        )

    def _chunk(self, choice: ChunkChoice) -> bytes:
        heading = self._heading
        return _event(Chunk(heading.id, heading.created, heading.model, (choice,), self._usage))


class CompletionAnswer:
    """A completion. with_top: whether alternatives were asked for beside the sampled tokens."""

    def __init__(self, heading: Heading, include_usage: bool, with_top: bool):
        self._heading = heading
        self._usage: UnsetType | None = None if include_usage else UNSET
        self._with_top = with_top
        self._offsets: dict[int, _Offset] = {}

    def events(self, outputs: Iterable[Output]) -> bytes:
        """As Answer.events."""
        parts = []
        for output in outputs:
            if output.text or output.logprobs or output.finish_reason is not None:
                reason = None if output.finish_reason is None else output.finish_reason.value
                logprobs = self._logprobs(output.choice, output.logprobs)
                choice = CompletionChoice(output.choice, output.text, logprobs, reason)
                parts.append(_event(self._object((choice,), self._usage)))
        return b"".join(parts)

    def tail(self, usage: Usage) -> bytes:
        """As Answer.tail."""
        return END if self._usage is UNSET else _event(self._object((), _usage(usage))) + END

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """As Answer.whole."""
        choices = tuple(
            CompletionChoice(
                index,
                "".join(gathered.texts),
                self._logprobs(index, gathered.logprobs),
                gathered.finish_reason,
                gathered.prompt_logprobs,
            )
            for index, gathered in sorted(_gather(outputs).items())
        )
        return _encode(self._object(choices, _usage(usage)))

    def _object(
        self, choices: tuple[CompletionChoice, ...], usage: UsageObject | UnsetType | None
    ) -> Completion:
        heading = self._heading
        return Completion(heading.id, heading.created, heading.model, choices, usage)

    def _logprobs(self, choice: int, entries: Iterable[TokenLogprobs]) -> LegacyLogprobs | None:
        entries = list(entries)
        if not entries:
            return None
        offset = self._offsets.setdefault(choice, _Offset())
        top = [
            {_text(other.token): _value(other) for other in (*entry.top, entry.sampled)}
            for entry in entries
        ]
        return LegacyLogprobs(
            tokens=[_text(entry.sampled.token) for entry in entries],
            token_logprobs=[_value(entry.sampled) for entry in entries],
            top_logprobs=top if self._with_top else None,
            text_offset=[offset.pass_over(entry.sampled.token) for entry in entries],
        )


class _Offset:
    """Where in its choice's text the next token begins, counted in characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._chars = 0

    def pass_over(self, token: bytes) -> int:
        """Where this token begins."""
        begin = self._chars
        self._chars += len(self._decoder.decode(token))
        return begin


class _Gathered:
    """All outputs of one choice. prompt_logprobs: of the prompt that it answers."""

    def __init__(self) -> None:
        self.prompt_logprobs: PromptLogprobs | UnsetType = UNSET
        self.texts: list[str] = []
        self.logprobs: list[TokenLogprobs] = []
        self.finish_reason: str | None = None


def _gather(outputs: Iterable[Output]) -> dict[int, _Gathered]:
    choices: dict[int, _Gathered] = {}
    for output in outputs:
        gathered = choices.setdefault(output.choice, _Gathered())
        gathered.texts.append(output.text)
        gathered.logprobs.extend(output.logprobs)
        if output.prompt_scores:
            gathered.prompt_logprobs = _prompt_logprobs(output.prompt_scores)
        if output.finish_reason is not None:
            gathered.finish_reason = output.finish_reason.value
    return choices


def _event(value: Struct) -> bytes:
    return b"data: %b\n\n" % _encode(value)


def _usage(usage: Usage) -> UsageObject:
    return UsageObject(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        PromptTokensDetails(usage.cached_tokens),
    )


def _chat_logprobs(entries: Iterable[TokenLogprobs]) -> ChatLogprobs:
    return ChatLogprobs(
        [
            TokenLogprob(
                _text(entry.sampled.token),
                _value(entry.sampled),
                list(entry.sampled.token),
                [TopLogprob(_text(top.token), _value(top), list(top.token)) for top in entry.top],
            )
            for entry in entries
        ]
    )


def _prompt_logprobs(scores: Iterable[PromptScore]) -> PromptLogprobs:
    """Nothing for the first token, whose probability nothing before it gives."""
    entries: PromptLogprobs = []
    for score in scores:
        if not score.rank:
            entries.append(None)
            continue
        logprob = max(score.logprob, _LOWEST_LOGPROB)
        entry = PromptLogprob(logprob, score.rank, _text(score.token))
        entries.append({str(score.token_id): entry})
    return entries


def _text(token: bytes) -> str:
    """A token's bytes as text; what is no whole character shows as the replacement character."""
    return token.decode("utf-8", "replace")


def _value(entry: Logprob) -> float:
    """A logprob that JSON can hold."""
    return max(entry.logprob, _LOWEST_LOGPROB)
