"""What a constrained answer may be, by plain means: `regex`'s partial matches; JSON by its endings.

Nothing here knows how a worker compiles a constraint. A text may become an instance of a schema
where one of some endings makes it one, and whether it then is one is said by `json` and
`jsonschema`. So a text is never taken for a beginning that it isn't. None that it is is missed in
arrays and strings with bounds: the endings are all those of the smallest instance, and inside of an
escape.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import regex  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator

# Between two tokens of JSON (docs/structured-output.md).
_WHITE_SPACE = re.compile(r" |\n {0,20}")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?$)', re.DOTALL)
_ESCAPES = ("", "n", *("u0041"[begin:] for begin in range(5)))


class Rule(Protocol):
    """Of which texts an answer may be."""

    def may_become(self, text: str) -> bool:
        """Whether it is one of them, or the beginning of one."""

    def is_whole(self, text: str) -> bool:
        """Whether it is one of them."""


@dataclass(frozen=True)
class Pattern:
    """A regex."""

    pattern: str

    def may_become(self, text: str) -> bool:
        return bool(regex.fullmatch(self.pattern, text, partial=True))

    def is_whole(self, text: str) -> bool:
        return bool(regex.fullmatch(self.pattern, text))


@dataclass(frozen=True)
class Schema:
    """A JSON schema of arrays and strings."""

    schema: dict[str, Any]

    def may_become(self, text: str) -> bool:
        if not has_our_white_space(text) or (text[-1:].isspace() and self._is_valid(text)):
            return False
        return any(self._is_valid(text + ending) for ending in self._endings)

    def is_whole(self, text: str) -> bool:
        return has_our_white_space(text) and not text[-1:].isspace() and self._is_valid(text)

    def _is_valid(self, text: str) -> bool:
        try:
            told = json.loads(text)
        except ValueError:
            return False
        return bool(self._validator.is_valid(told))

    @cached_property
    def _validator(self) -> Draft202012Validator:
        return Draft202012Validator(self.schema)

    @cached_property
    def _endings(self) -> list[str]:
        whole = json.dumps(smallest(self.schema))
        ends = [whole[begin:] for begin in range(len(whole) + 1)]
        return list(dict.fromkeys(escape + end for escape in _ESCAPES for end in ends))


def smallest(schema: dict[str, Any]) -> Any:
    """An instance with as little as may be; it has at least one of what an array may hold."""
    if schema["type"] == "array":
        return [smallest(schema["items"])] * max(schema.get("minItems", 0), 1)
    assert schema["type"] == "string"
    return "x" * schema.get("minLength", 0)


def has_our_white_space(text: str) -> bool:
    """Whether what stands between tokens is as workers let it be, up to the text's end."""
    outside = _STRING.sub('""', text)
    runs = re.findall(r"\s+", outside)
    return not text[:1].isspace() and all(_WHITE_SPACE.fullmatch(run) for run in runs)


def rule_of(node: dict[str, Any]) -> Rule | None:
    """What a gen's answer must conform to."""
    if "regex" in node:
        return Pattern(node["regex"])
    return Schema(node["json_schema"]) if "json_schema" in node else None


def may_follow(data: bytes, prefix: str, rule: Rule) -> bool:
    """Whether bytes may be the beginning of the prefix and an answer behind it.

    A character that is not finished stands for any.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data)
    except UnicodeDecodeError:
        return False
    if decoder.getstate()[0]:
        text += "é"
    if len(text) <= len(prefix):
        return prefix.startswith(text)
    return text.startswith(prefix) and rule.may_become(text[len(prefix) :])
