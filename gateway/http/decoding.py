"""Bodies to values: decoded and checked by msgspec, and every refusal with the field's name."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TypeVar

import msgspec

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
# A larger body is not read again only to say where half of a surrogate pair stands.
_MAX_TRACED_BYTES = 256 * 1024
Value = TypeVar("Value")


def check_nodes(body: bytes, limits: LimitConfig, ids: int = 0) -> None:
    """Refuse a body of too many small things before they become objects. ids: further numbers.

    Strings are looked at one by one, and all else is counted between them: a comma in a text is no
    member. A string without an end reaches to the body's end, so nothing is looked at twice.
    """
    num_members = _count_members(body, 0, len(body))
    if num_members + body.count(b'"') <= limits.json_nodes:
        return
    num_strings = 0
    for string in _STRING.finditer(body):
        num_strings += 1
        num_members -= _count_members(body, *string.span())
        if num_strings > limits.json_nodes:
            break
    if num_strings > limits.json_nodes or num_strings + num_members > limits.json_nodes + ids:
        raise invalid(None, f"at most {limits.json_nodes} strings and members are allowed")


def _count_members(body: bytes, start: int, end: int) -> int:
    return sum(body.count(sign, start, end) for sign in (b",", b"{", b"["))


def decoded(decoder: msgspec.json.Decoder[Value], body: bytes) -> Value:
    """The body as the decoder's type. Raises InvalidRequest."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise explained(str(error)) from error
    except RecursionError as error:
        raise InvalidRequest("The body is nested too deeply.", code="invalid_json") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise _explain_json(body, error) from error


def check_depth(path: str, value: object, depth: int) -> None:
    """Refuse a value that is nested deeper than that. Raises InvalidRequest."""
    if depth < 0:
        raise invalid(path, "nested too deeply")
    members = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for member in members:  # type: ignore[attr-defined]
            check_depth(path, member, depth - 1)


def explained(message: str, within: str = "") -> InvalidRequest:
    """msgspec's `... - at `$.a[0].b`` with the path as param, behind what it lies within."""
    rule, _, path = message.rpartition(" - at `$")
    rule, path = (rule, path.rstrip("`")) if rule else (message, "")
    path = (within + path).removeprefix(".")
    extra = re.fullmatch(r"Object contains unknown field `(.*)`", rule, re.DOTALL)
    if extra:
        return unknown(f"{path}.{extra[1]}" if path else extra[1])
    missing = re.fullmatch(r"Object missing required field `(.*)`", rule)
    if missing:
        field = f"{path}.{missing[1]}" if path else missing[1]
        return InvalidRequest(
            f"Missing required parameter: '{field}'.",
            param=field,
            code="missing_required_parameter",
        )
    return invalid(path or None, rule[0].lower() + rule[1:])


def _explain_json(body: bytes, error: Exception) -> InvalidRequest:
    """Why a body is no JSON; half a surrogate pair is traced to its field."""
    path = None
    if len(body) <= _MAX_TRACED_BYTES:
        with suppress(ValueError, RecursionError):
            path = _lone_surrogate("", json.loads(body))
    if path is not None:
        return invalid(path, "half of a surrogate pair is no text")
    return InvalidRequest(f"The body is not valid JSON in UTF-8: {error}", code="invalid_json")


def _lone_surrogate(path: str, value: object) -> str | None:
    if isinstance(value, str):
        return path if re.search("[\ud800-\udfff]", value) else None
    if isinstance(value, dict):
        members = [(f"{path}.{key}".lstrip("."), member) for key, member in value.items()]
    elif isinstance(value, list):
        members = [(f"{path}[{position}]", member) for position, member in enumerate(value)]
    else:
        return None
    found = (_lone_surrogate(*member) for member in members)
    return next((inner for inner in found if inner is not None), None)


def unknown(path: str) -> InvalidRequest:
    """A field that nobody knows."""
    return InvalidRequest(
        f"Unknown parameter: '{path:.256}'.", param=path[:256], code="unknown_parameter"
    )


def invalid(path: str | None, rule: str) -> InvalidRequest:
    """A value that breaks a rule; path None: the body."""
    where = f"'{path}'" if path else "the body"
    return InvalidRequest(f"Invalid value for {where}: {rule}.", param=path)
