"""A chat's messages as OpenAI writes them, and what of them is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.http.decoding import invalid, unknown


class FunctionCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that the assistant made earlier; arguments are JSON in a string."""

    name: str
    arguments: str


class PastCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Part of the history that the chat template renders. index: as events have it; not used."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | None = None


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chat message. A content list holds text parts only."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[PastCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    annotations: Any = None
    audio: Any = None
    function_call: Any = None


# The key that holds a part's text, by the part's type.
_TEXT_PARTS = {"text": "text", "refusal": "refusal"}


def check_messages(messages: Sequence[Message], limits: LimitConfig) -> None:
    """Refuse what no worker reads, by its place. Raises InvalidRequest."""
    if len(messages) > limits.messages:
        raise invalid("messages", f"at most {limits.messages} messages are allowed")
    parts = (len(one.content) for one in messages if isinstance(one.content, list))
    if sum(parts) > limits.content_parts:
        raise invalid("messages", f"at most {limits.content_parts} text parts are allowed")
    for position, message in enumerate(messages):
        _check_message(f"messages[{position}]", message)


def plain(message: Message) -> dict[str, object]:
    """The message without nulls; text parts stay parts, since some templates read them so."""
    found: dict[str, object] = {"role": message.role}
    content = message.content
    if content is None and message.refusal is not None:
        content = message.refusal
    reasoning = message.reasoning_content or message.reasoning
    for name, value in (
        ("content", content),
        ("name", message.name),
        ("reasoning_content", reasoning),
        ("tool_call_id", message.tool_call_id),
    ):
        if value is not None:
            found[name] = value
    if message.tool_calls:
        found["tool_calls"] = [
            {"id": call.id, "type": call.type, "function": msgspec.to_builtins(call.function)}
            for call in message.tool_calls
        ]
    return found


def _check_message(path: str, message: Message) -> None:
    for name in ("audio", "function_call"):
        if getattr(message, name) is not None:
            raise InvalidRequest(
                f"Unsupported parameter: '{path}.{name}' is not supported here.",
                param=f"{path}.{name}",
                code="unsupported_parameter",
            )
    if message.role == "tool" and message.tool_call_id is None:
        raise invalid(f"{path}.tool_call_id", "a message of the role 'tool' needs it")
    if message.role == "function" and message.name is None:
        raise invalid(f"{path}.name", "a message of the role 'function' needs it")
    if message.tool_calls and message.role != "assistant":
        raise invalid(f"{path}.tool_calls", "only a message of the role 'assistant' has them")
    says_nothing = message.content is None and message.refusal is None and not message.tool_calls
    if says_nothing or (message.content is None and message.role != "assistant"):
        raise invalid(f"{path}.content", "expected a string or a list of text parts")
    if isinstance(message.content, list):
        for position, part in enumerate(message.content):
            _check_part(f"{path}.content[{position}]", part)


def _check_part(path: str, part: dict[str, Any]) -> None:
    kind = part.get("type")
    key = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if key is None:
        raise InvalidRequest(
            f"Unsupported value: '{path}.type' is {kind!r:.64}, not 'text'.",
            param=f"{path}.type",
            code="unsupported_value",
        )
    if not isinstance(part.get(key), str):
        raise invalid(f"{path}.{key}", "expected a string")
    for name in part.keys() - {"type", key}:
        raise unknown(f"{path}.{name}")
