"""Chat completions: messages with text, reasoning and tool calls."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.errors import GatewayError
from gateway.http.answer import END, Gathered, Heading, error_event, event, gathered
from gateway.http.objects import (
    ChatChoice,
    ChatCompletion,
    ChatMessage,
    Chunk,
    ChunkChoice,
    Delta,
    Function,
    FunctionPiece,
    ToolCall,
    ToolCallPiece,
    chat_logprobs,
    prompt_logprobs,
    usage_object,
)
from gateway.request import Output, ToolCallDelta, Usage

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# What Mistral's templates ask of an id; others take any.
_ID_CHARS = 9
CallEnd = Literal["tool_calls", "stop"]


def call_id(answer_id: str, choice: int, index: int) -> str:
    """The id of a call: nine letters and digits that no other call has."""
    seed = f"{answer_id}/{choice}/{index}".encode()
    number = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "little")
    digits = []
    for _ in range(_ID_CHARS):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)


class ChatAnswer:
    """A chat completion. The first event of each choice names the role.

    call_end: why a choice that called a tool ended, in OpenAI's words; it is "stop" where the
    client said which one to call.
    """

    def __init__(self, heading: Heading, include_usage: bool, call_end: CallEnd = "tool_calls"):
        self._heading = heading
        self._usage: UnsetType | None = None if include_usage else UNSET
        self._call_end = call_end
        self._begun: set[int] = set()
        self._calling: set[int] = set()

    def events(self, outputs: Iterable[Output]) -> bytes:
        """As Answer.events."""
        parts: list[bytes] = []
        for output in outputs:
            if output.choice not in self._begun:
                self._begun.add(output.choice)
                first = Delta(role="assistant", content="")
                parts.append(self._chunk(ChunkChoice(output.choice, first)))
            if output.text or output.logprobs or output.reasoning or output.tool_calls:
                logprobs = chat_logprobs(output.logprobs) if output.logprobs else None
                parts.append(self._chunk(ChunkChoice(output.choice, self._delta(output), logprobs)))
            if output.finish_reason is not None:
                is_call = output.choice in self._calling
                reason = self._reason(output.finish_reason.value, is_call)
                parts.append(self._chunk(ChunkChoice(output.choice, Delta(), None, reason)))
        return b"".join(parts)

    def tail(self, usage: Usage) -> bytes:
        """As Answer.tail."""
        if self._usage is UNSET:
            return END
        heading = self._heading
        chunk = Chunk(heading.id, heading.created, heading.model, (), usage_object(usage))
        return event(chunk) + END

    def failure(self, error: GatewayError) -> bytes:
        """As Answer.failure."""
        return error_event(error)

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """As Answer.whole."""
        choices = [
            ChatChoice(
                index,
                self._message(index, found),
                chat_logprobs(found.logprobs) if found.logprobs else None,
                self._reason(found.finish_reason, bool(found.calls)),
                prompt_logprobs(found.scores) if found.scores else UNSET,
            )
            for index, found in gathered(outputs)
        ]
        heading = self._heading
        return msgspec.json.encode(
            ChatCompletion(
                heading.id,
                heading.created,
                heading.model,
                choices,
                usage_object(usage),
                service_tier=heading.service_tier or UNSET,
            )
        )

    def _reason(self, reason: str | None, is_call: bool) -> str | None:
        return self._call_end if is_call and reason == "stop" else reason

    def _delta(self, output: Output) -> Delta:
        others = output.reasoning or output.tool_calls
        calls = tuple(self._piece(output.choice, call) for call in output.tool_calls)
        return Delta(
            content=UNSET if others and not output.text else output.text,
            reasoning_content=output.reasoning or UNSET,
            tool_calls=calls or UNSET,
        )

    def _piece(self, choice: int, delta: ToolCallDelta) -> ToolCallPiece:
        self._calling.add(choice)
        if not delta.name:
            return ToolCallPiece(delta.index, function=FunctionPiece(arguments=delta.arguments))
        return ToolCallPiece(
            delta.index,
            call_id(self._heading.id, choice, delta.index),
            "function",
            FunctionPiece(delta.name, delta.arguments),
        )

    def _message(self, choice: int, found: Gathered) -> ChatMessage:
        calls = [
            ToolCall(
                call_id(self._heading.id, choice, index),
                Function(call.name, "".join(call.arguments)),
            )
            for index, call in sorted(found.calls.items())
        ]
        return ChatMessage(
            content=found.text or (None if calls else ""),
            reasoning_content="".join(found.reasoning) or UNSET,
            tool_calls=calls or UNSET,
        )

    def _chunk(self, choice: ChunkChoice) -> bytes:
        heading = self._heading
        return event(
            Chunk(
                heading.id,
                heading.created,
                heading.model,
                (choice,),
                self._usage,
                service_tier=heading.service_tier or UNSET,
            )
        )
