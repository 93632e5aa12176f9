"""A client's chat messages, checked and in the shape that chat templates read.

What transformers does on the way into a template, and two things more: JSON arguments of tool
calls become objects, as most templates expect, and parts of content become one text where the
template knows no parts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from worker.errors import InvalidRequest

Message = Mapping[str, Any]
# A template may write a special token around a role ("<|" + role + "|>"), so it's never free text.
ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
REASONING = ("reasoning_content", "thinking", "reasoning")


def normalised(messages: object, takes_parts: bool) -> list[dict[str, Any]]:
    """Returns the messages as a template reads them; raises InvalidRequest with the place.

    takes_parts: whether the template itself reads content that is a list of parts.
    """
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages", "messages must be a list with at least one message.")
    return [_message(message, f"messages[{i}]", takes_parts) for i, message in enumerate(messages)]


def _message(message: object, place: str, takes_parts: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        raise InvalidRequest(
            "messages", f"{place} must be an object with a role out of {', '.join(sorted(ROLES))}."
        )
    kept = {key: value for key, value in message.items() if value is not None}
    if "content" in kept:
        kept["content"] = _content(kept["content"], place, takes_parts)
    elif "tool_calls" in kept:
        kept["content"] = ""
    if "tool_calls" in kept:
        kept["tool_calls"] = _tool_calls(kept["tool_calls"], place)
    reasoning = next((kept[name] for name in REASONING if name in kept), None)
    if reasoning is not None:
        kept = {"thinking": reasoning, **kept, "reasoning_content": reasoning}
    return kept


def _content(content: object, place: str, takes_parts: bool) -> object:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidRequest("messages", f"{place}.content must be text or a list of text parts.")
    texts = [_part_text(part, f"{place}.content[{i}]") for i, part in enumerate(content)]
    if takes_parts:
        return [{"type": "text", "text": text} for text in texts]
    return "".join(texts)


def _part_text(part: object, place: str) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        text = part.get("text", part.get("refusal"))
        if part.get("type") in ("text", "refusal") and isinstance(text, str):
            return text
    raise InvalidRequest("messages", f"{place} must be a text part; this model reads text only.")


def _tool_calls(calls: object, place: str) -> list[Any]:
    if not isinstance(calls, list):
        raise InvalidRequest("messages", f"{place}.tool_calls must be a list.")
    return [_tool_call(call) for call in calls]


def _tool_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    arguments = function["arguments"]
    try:
        parsed = json.loads(arguments) if arguments else {}
    except ValueError:
        return call
    if not isinstance(parsed, dict):
        return call
    return {**call, "function": {**function, "arguments": parsed}}
