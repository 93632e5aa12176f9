"""What an unlimited cache would have given: how much of each prompt's beginning was sent before.

A prompt's text, with marks where messages begin, is cut into units: a word with the space in front
of it, at most eight characters of it, or one other character. The units of a prompt make a chain
of digests; what of the chain is known when the prompt is sent would have been in the cache. Units
are no tokens, so only their share is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from xxhash import xxh3_128_digest

_UNIT = re.compile(r"\s?\w{1,8}|\s?[^\w\s]|\s", re.DOTALL)
_TURN = "\x00"


@dataclass(frozen=True, slots=True)
class Share:
    """Units of a prompt, and how many of its first ones were known."""

    units: int
    shared: int


def units_of(body: Mapping[str, Any]) -> list[str]:
    """Returns the prompt's text in units, in the order in which a template says it: tools first."""
    if "prompt" in body:
        prompt = body["prompt"]
        return _UNIT.findall(prompt) if isinstance(prompt, str) else [str(one) for one in prompt]
    tools = json.dumps(body["tools"], sort_keys=False) if body.get("tools") else ""
    found = _UNIT.findall(tools)
    for message in body.get("messages", ()):
        found.append(f"{_TURN}{message.get('role', '')}")
        found += _UNIT.findall(_content(message))
    return found


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    said = content if isinstance(content, str) else json.dumps(content) if content else ""
    calls = message.get("tool_calls")
    return said + (json.dumps(calls) if calls else "")


@dataclass(slots=True)
class Oracle:
    """Knows all prompts that were sent, apart for each tenant; grows with every new unit."""

    _known: dict[str, set[bytes]] = field(default_factory=dict)

    def saw(self, tenant: str, body: Mapping[str, Any]) -> Share:
        """Returns how much of it was known, and knows it from now on.

        The last unit counts as new, as the last token of a prompt is always computed.
        """
        known = self._known.setdefault(tenant, set())
        units = units_of(body)
        shared, all_known = 0, True
        for digest in _chain(units):
            all_known = all_known and digest in known
            shared += all_known
            known.add(digest)
        return Share(len(units), min(shared, max(0, len(units) - 1)))

    def made(self, tenant: str, body: Mapping[str, Any], answer: str) -> None:
        """It knows an answer that was made behind this prompt."""
        said = {"role": "assistant", "content": answer}
        units = units_of({**body, "messages": [*body.get("messages", ()), said]})
        self._known.setdefault(tenant, set()).update(_chain(units))


def _chain(units: Iterable[str]) -> Iterator[bytes]:
    digest = b""
    for unit in units:
        digest = xxh3_128_digest(digest + unit.encode("utf-8", "surrogatepass"))
        yield digest
