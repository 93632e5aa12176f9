"""What single settings may be, and the sentence for one that is wrong: field, value, range."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from msgspec import Meta, Struct


def whole(pattern: str) -> Meta:
    """All of a text is what the pattern says: `$` would let a newline behind it through."""
    return Meta(pattern=rf"^{pattern}\Z")


def portable(schema: Any) -> Any:
    """A JSON schema whose patterns end as other languages write it: there, `$` is the very end."""
    if isinstance(schema, dict):
        return {
            name: value.replace(r"\Z", "$")
            if name == "pattern" and isinstance(value, str)
            else portable(value)
            for name, value in schema.items()
        }
    return [portable(one) for one in schema] if isinstance(schema, list) else schema


PositiveInt = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
Name = Annotated[str, whole(_NAME)]
Address = Annotated[str, whole(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")]
KeyDigest = Annotated[str, whole(r"(sha256:)?[0-9a-f]{64}")]
Url = Annotated[str, whole(r"https?://[^\s/]+(/[^\s]*)?")]
Instant = Annotated[datetime, Meta(tz=True)]


def is_name(text: str) -> bool:
    """Whether somebody else's word is a name that may stand in a header, a label and a log."""
    return re.fullmatch(_NAME, text) is not None


def refuse_repeats(field: str, values: Sequence[str]) -> None:
    """Raises ValueError where a value stands twice."""
    for value, count in Counter(values).items():
        if count > 1:
            raise ValueError(f"{field} is {value!r} more than once: each must be unique")


def refuse_more(field: str, value: float, limit_field: str, limit: float) -> None:
    """Raises ValueError where a value is above another setting's."""
    if value > limit:
        raise ValueError(f"{field} is {value}: at most {limit_field}, {limit}")


def refuse_bad_port(field: str, url: str, value: str) -> None:
    """Raises ValueError where a URL's port is no port. value: as the setting has it."""
    try:
        port = urlsplit(url).port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError(f"{field} is {_shown(value)}: its port must be from 1 to 65535")


def refuse_infinite(value: object, field: str = "", depth: int = 64) -> None:
    """Raises ValueError where a number in the settings is not finite, or they hold themselves."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{field} is {value}: expected a finite number")
    if not depth:
        raise ValueError(f"{field:.64}: nested too deeply")
    if isinstance(value, dict):
        for name, member in value.items():
            refuse_infinite(member, f"{field}.{name}".lstrip("."), depth - 1)
    elif isinstance(value, list | tuple):
        for position, member in enumerate(value):
            refuse_infinite(member, f"{field}[{position}]", depth - 1)


def explain(message: str, settings: object, kind: object) -> str:
    """`Expected int <= 65535 - at $.port` with the field and its value in front.

    kind: what the settings were to be; it knows the words that a field may be.
    """
    rule, _, path = message.rpartition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    if not rule or not field:
        return rule or message
    value, steps = settings, re.findall(r"[^.\[\]]+", field)
    for step in steps:
        try:
            value = value[int(step)] if isinstance(value, list | tuple) else value[step]  # type: ignore[index]
        except (KeyError, IndexError, ValueError, TypeError):
            return f"{field}: {rule}"
    if re.match(r"[a-z0-9_.]+ is ", rule):  # our own, of a field inside
        return f"{field}.{rule}"
    if rule.startswith("Invalid enum value"):
        rule = f"expected one of {', '.join(_words(kind, steps))}"
    return f"{field} is {_shown(value)}: {rule[0].lower()}{rule[1:]}"


def _shown(value: object) -> str:
    """The value without a password in a URL, and not all of a long one."""
    return re.sub("//[^/@]*@", "//***@", f"{value!r:.200}")


def _words(kind: object, steps: Sequence[str]) -> list[str]:
    """What a field of words, steps below a type, may be."""
    if get_origin(kind) is Literal:
        return [str(word) for word in get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints: Mapping[str, Any] = get_type_hints(kind)
        return _words(hints.get(steps[0]), steps[1:]) if steps else []
    is_container = get_origin(kind) in (tuple, list, dict)
    below = steps[1:] if is_container else steps
    return [word for inner in get_args(kind) for word in _words(inner, below)]
