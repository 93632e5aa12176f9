"""Tools for a template that knows none: told in plain words, with the first message.

The number of messages stays the same, since boundaries count them. Calls and results of the
history are written as a model that was told so writes and reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from worker.parts.formats import TOLD

Message = Mapping[str, Any]

_WORDS = """You may call functions to answer. Here they are, as JSON, one per line:
<tools>
{tools}
</tools>
For each call, write a JSON object with its name and arguments in tags like these:
<tool_call>
{{"name": <name>, "arguments": <arguments>}}
</tool_call>"""


def told(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Returns the messages with what a template would have made of tools.

    messages, tools: as OpenAI has them; what is wrong with a message is left to others to refuse.
    """
    shown = [_shown(message) for message in messages]
    if not tools or not shown:
        return shown
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    words = _WORDS.format(tools=listed)
    first = shown[0]
    text = _text(first.get("content"))
    leads = first.get("role") in ("system", "developer")
    parts = (text, words) if leads else (words, text)
    return [{**first, "content": "\n\n".join(part for part in parts if part)}, *shown[1:]]


def _shown(message: Message) -> Message:
    """A message without calls or results, which are in its text."""
    if message.get("role") == "tool":
        text = _text(message.get("content"))
        return {"role": "user", "content": f"<tool_response>\n{text}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return message
    text = _text(message.get("content"))
    written = TOLD.between.join(map(_call, calls))
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "content": "\n".join(part for part in (text, written) if part)}


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    function = function if isinstance(function, Mapping) else {}
    name, arguments = function.get("name", ""), function.get("arguments", "{}")
    told = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f"{TOLD.lead}{TOLD.begin}{name}{TOLD.middle}{told}{TOLD.end}{TOLD.close}"


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(
        part["text"]
        for part in content
        if isinstance(part, Mapping) and isinstance(part.get("text"), str)
    )
