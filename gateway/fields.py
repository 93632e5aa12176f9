"""What single settings may be, and the sentence for one that is wrong: field, value, range."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta

PositiveInt = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Address = Annotated[str, Meta(pattern=r"^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$")]
KeyDigest = Annotated[str, Meta(pattern=r"^(sha256:)?[0-9a-f]{64}$")]
Instant = Annotated[datetime, Meta(tz=True)]


def refuse_repeats(field: str, values: Sequence[str]) -> None:
    """Raises ValueError where a value stands twice."""
    for value, count in Counter(values).items():
        if count > 1:
            raise ValueError(f"{field} is {value!r} more than once: each must be unique")


def explain(message: str, settings: object) -> str:
    """`Expected int <= 65535 - at $.port` with the field and its value in front."""
    rule, _, path = message.rpartition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    if not rule or not field:
        return rule or message
    value = settings
    for step in re.findall(r"[^.\[\]]+", field):
        try:
            value = value[int(step)] if isinstance(value, list | tuple) else value[step]  # type: ignore[index]
        except (KeyError, IndexError, ValueError, TypeError):
            return f"{field}: {rule}"
    if re.match(r"[a-z0-9_.]+ is ", rule):  # our own, of a field inside
        return f"{field}.{rule}"
    told = re.sub("//[^/@]*@", "//***@", f"{value!r:.200}")  # a password in a URL
    return f"{field} is {told}: {rule[0].lower()}{rule[1:]}"
