"""Keeps a client's text from turning into special tokens when a chat template is rendered.

A mark is one character that stands nowhere in the request. It's put behind the first character of
every special token that a client's string spells, and at a string's end where the string that
follows could complete one ("<|im_" + "end|>"). What still spells a special token after rendering
is then the template's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from worker.errors import InvalidRequest

T = TypeVar("T")
# Noncharacters first: they have no use in text that is exchanged. Then the private use area.
CANDIDATES = [chr(code) for code in (*range(0xFDD0, 0xFDF0), *range(0xE000, 0xF900))]


def special_pattern(special_tokens: Iterable[str]) -> re.Pattern[str]:
    """Returns a pattern for any of the special tokens, the longest first."""
    longest_first = sorted((token for token in special_tokens if token), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


class Marks:
    """Marks strings that spell special tokens of one vocabulary."""

    def __init__(self, special_tokens: Iterable[str]) -> None:
        tokens = [token for token in special_tokens if token]
        self._special = special_pattern(tokens)
        self._begins = tuple({token[:size] for token in tokens for size in range(1, len(token))})
        self._last = {begin[-1] for begin in self._begins}

    def put(self, value: T) -> tuple[str, T]:
        """Returns the mark, empty where none is needed, and the value with it put in place."""
        if not self._needed(value):
            return "", value
        mark = _unused(value)
        return mark, _mapped(value, lambda text: self._marked(text, mark))

    @staticmethod
    def removed(text: str, mark: str) -> str:
        """Returns `text` without the mark, also where a template wrote it as a JSON escape."""
        return text.replace(mark, "").replace(_escape(mark), "") if mark else text

    def _needed(self, value: object) -> bool:
        if isinstance(value, str):
            return bool(self._special.search(value)) or self._open(value)
        if isinstance(value, dict):
            return any(self._needed(part) for pair in value.items() for part in pair)
        if isinstance(value, (list, tuple)):
            return any(map(self._needed, value))
        return False

    def _marked(self, text: str, mark: str) -> str:
        marked = self._special.sub(lambda found: f"{found[0][0]}{mark}{found[0][1:]}", text)
        return marked + mark if self._open(text) else marked

    def _open(self, text: str) -> bool:
        """Whether the text ends with the beginning of a special token."""
        return text[-1:] in self._last and text.endswith(self._begins)


def _unused(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    for mark in CANDIDATES:
        if mark not in text and _escape(mark) not in text:
            return mark
    raise InvalidRequest("messages", "The request uses every private Unicode character.")


def _escape(mark: str) -> str:
    return f"\\u{ord(mark):04x}"


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _mapped(part, change) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(part, change) for part in value)
    return value
