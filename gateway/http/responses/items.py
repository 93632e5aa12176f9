"""The items of a response's input, and the chat messages that they are.

message                text of a role
reasoning              goes before the assistant's next words
function_call          the assistant's; calls that follow one another are one message
function_call_output   what the client's tool gave
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw

from gateway.errors import InvalidRequest
from gateway.http.decoding import explained, invalid
from gateway.http.messages import FunctionCall, Message, PastCall

_TEXT_KINDS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_MAX_KIND_CHARS = 64


class _MessageItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[dict[str, Any]]
    type: Literal["message"] = "message"
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class _CallItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    call_id: str
    name: str
    arguments: str
    type: Literal["function_call"]
    id: str | None = None
    status: str | None = None


class _OutputItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    call_id: str
    output: str | list[dict[str, Any]]
    type: Literal["function_call_output"]
    id: str | None = None
    status: str | None = None


class _ReasoningItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["reasoning"]
    summary: list[dict[str, Any]] = []
    content: list[dict[str, Any]] | None = None
    id: str | None = None
    status: str | None = None
    encrypted_content: Raw = Raw()


_KINDS: dict[str, type[msgspec.Struct]] = {
    "message": _MessageItem,
    "function_call": _CallItem,
    "function_call_output": _OutputItem,
    "reasoning": _ReasoningItem,
}


def messages_of(items: Sequence[dict[str, Any]]) -> list[Message]:
    """The chat that these items are. Raises InvalidRequest with the item's place."""
    gathering = _Gathering()
    for position, item in enumerate(items):
        gathering.take(_read(f"input[{position}]", item), f"input[{position}]")
    gathering.close()
    return gathering.messages


def _read(path: str, item: dict[str, Any]) -> msgspec.Struct:
    kind = item.get("type", "message")
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise InvalidRequest(
            f"Unsupported value: '{path}.type' is {kind!r:.{_MAX_KIND_CHARS}}; expected one of "
            f"{', '.join(_KINDS)}.",
            param=f"{path}.type",
            code="unsupported_value",
        )
    try:
        return msgspec.convert(item, known)
    except msgspec.ValidationError as error:
        raise explained(str(error), path) from error


class _Gathering:
    """What came of the assistant's current turn, and the messages before it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._text: str | None = None
        self._reasoning: str | None = None
        self._calls: list[PastCall] = []

    def take(self, item: msgspec.Struct, path: str) -> None:
        """One more item."""
        if isinstance(item, _ReasoningItem):
            if self._text is not None or self._calls:
                self.close()
            parts = item.content or item.summary
            self._reasoning = (self._reasoning or "") + _text(f"{path}.content", parts)
        elif isinstance(item, _CallItem):
            function = FunctionCall(item.name, item.arguments)
            self._calls.append(PastCall(item.call_id, function))
        elif isinstance(item, _OutputItem):
            self.close()
            output = _text(f"{path}.output", item.output)
            self.messages.append(Message("tool", output, tool_call_id=item.call_id))
        elif isinstance(item, _MessageItem):
            text = _text(f"{path}.content", item.content)
            if item.role != "assistant":
                self.close()
                self.messages.append(Message(item.role, text))
                return
            if self._text is not None or self._calls:
                self.close()
            self._text = text

    def close(self) -> None:
        """The assistant's turn is over, if it has one."""
        if self._text is not None or self._calls:
            self.messages.append(
                Message(
                    "assistant",
                    self._text,
                    tool_calls=self._calls or None,
                    reasoning_content=self._reasoning,
                )
            )
        self._text, self._reasoning, self._calls = None, None, []


def _text(path: str, content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for position, part in enumerate(content):
        kind, place = part.get("type"), f"{path}[{position}]"
        key = "refusal" if kind == "refusal" else "text"
        if kind not in (*_TEXT_KINDS, "refusal"):
            raise InvalidRequest(
                f"Unsupported value: '{place}.type' is {kind!r:.{_MAX_KIND_CHARS}}, no text.",
                param=f"{place}.type",
                code="unsupported_value",
            )
        if not isinstance(part.get(key), str):
            raise invalid(f"{place}.{key}", "expected a string")
        texts.append(part[key])
    return "".join(texts)
