"""A prompt in parts, one per boundary of its chain; a part is read when somebody asks for it. Pure.

    chat    tools, message 0, message 1, ...    as the chain has them
    text    what follows each boundary, up to the next one and a little beyond

A plain text has no parts of its own: one more character in front moves all of it. So a part begins
at a boundary, which two texts share, and ends after so many characters that are no space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from gateway.doctor.shape import PartText

_STATIC = ("system", "developer")
_sorted = msgspec.json.Encoder(order="sorted")
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_message = msgspec.json.Decoder(dict[str, object])


class Parts(Protocol):
    """The parts of a prompt, as many as its chain has boundaries."""

    @property
    def num_static(self) -> int:
        """Leading parts that are tools, system or developer messages."""
        ...

    def part(self, index: int) -> PartText:
        """One of them."""
        ...

    def name(self, index: int) -> str:
        """What clients call it."""
        ...


class ChatParts:
    """Of a chat. messages, tools: JSON, as the worker is told them; tools empty: none."""

    def __init__(self, messages: bytes, tools: bytes = b""):
        self._messages = _raws.decode(messages)
        self._tools = tools
        self._lead = int(bool(tools))

    @property
    def num_static(self) -> int:
        """As Parts."""
        count = 0
        for raw in self._messages:
            if not _is_static(raw):
                break
            count += 1
        return self._lead + count

    def name(self, index: int) -> str:
        """As Parts."""
        place = index - self._lead
        return "tools" if place < 0 else f"messages[{place}]"

    def part(self, index: int) -> PartText:
        """As Parts."""
        if index < self._lead:
            return PartText("tools", "tools", self._tools.decode(), static=True)
        return part_of(self.name(index), _message.decode(self._messages[index - self._lead]))


class TextParts:
    """Of a plain prompt. places: its boundaries, in characters."""

    num_static = 0

    def __init__(self, text: str, places: Sequence[int]):
        self._text = text
        self._places = places

    def name(self, _: int) -> str:
        """As Parts."""
        return "prompt"

    def part(self, index: int) -> PartText:
        """As Parts."""
        start = self._places[index - 1] if index else 0
        lead = self._places[0]
        # Half again as much, since space is not counted.
        text = self._text[start : start + lead + lead // 2]
        return PartText("prompt", "text", text, window=lead * 15 // 16)


def _is_static(raw: msgspec.Raw) -> bool:
    """Whether the message is one that all requests share. The role comes first, as a rule."""
    head = bytes(memoryview(raw)[:20])
    if head.startswith(b'{"role":"') and head[9:].find(b'"') > 0:
        return head[9:].split(b'"')[0].decode() in _STATIC
    return _message.decode(raw).get("role") in _STATIC


def part_of(name: str, message: Mapping[str, object]) -> PartText:
    """A message: its text, and behind it whatever else it has, as JSON."""
    role = str(message.get("role", ""))
    content = message.get("content")
    if isinstance(content, list):
        pieces = [one.get("text") or one.get("refusal") or "" for one in content]
        text = "".join(str(piece) for piece in pieces)
    else:
        text = "" if content is None else str(content)
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    if rest:
        text += "\n" + _sorted.encode(rest).decode()
    return PartText(name, role, text, static=role in _STATIC)
