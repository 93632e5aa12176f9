"""What is typed and shown of tenants: durations, limits that may be none, columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pando.errors import PandoError

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
NONE = "none"

LIMITS = {
    "requests_per_minute": "requests a minute",
    "tokens_per_minute": "tokens a minute",
    "concurrency": "at once",
    "max_queued": "waiting",
}


class BadValue(PandoError):
    """Text that an option can't be."""


def parse_duration(text: str) -> float:
    """`90s`, `15m`, `24h` or `30d` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None or not float(match[1]):
        raise BadValue(f"{text!r} is no duration: write a number above 0 with s, m, h or d.")
    return float(match[1]) * UNITS_S[match[2]]


def parse_limit(name: str, text: str) -> int | None:
    """A whole number; `none` is no limit."""
    if text == NONE:
        return None
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise BadValue(f"{name} is {text!r}: write a whole number, or none.") from None


def describe(tenant: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A tenant's fields and values, in the order in which one reads them."""
    return [
        ("id", tenant["id"]),
        ("kept in", tenant["source"]),
        ("models", ", ".join(tenant["models"]) if tenant["models"] is not None else "all"),
        ("namespace", tenant["namespace"]),
        ("priority", tenant["priority"]),
        ("weight", f"{tenant['weight']:g}"),
        ("quota", quota(tenant)),
        ("cache", f"keeps {tenant['cache_share']:.0%}, at most {tenant['cache_cap']:.0%} unused"),
        ("policy", policy(tenant)),
        ("debug", "yes" if tenant["debug"] else "no"),
        ("keys", ", ".join(key_words(key) for key in tenant["keys"]) or NONE),
    ]


def quota(tenant: Mapping[str, Any]) -> str:
    """The limits that there are, as a clause."""
    limits = tenant["quota"]
    told = [f"{limits[name]} {words}" for name, words in LIMITS.items() if name in limits]
    return ", ".join(told) or NONE


def policy(tenant: Mapping[str, Any]) -> str:
    """How its requests choose a worker."""
    chosen = tenant["policy"]
    if chosen is None:
        return "the fleet's"
    name: str = chosen["name"]
    if name == "dedicated":
        return f"{name} ({', '.join(chosen['workers'])})"
    return f"{name} ({chosen['shard_size']})" if name == "shuffle_shard" else name


def key_words(key: Mapping[str, Any]) -> str:
    """A key's name, and its end if it has one."""
    if key["expires_at"] is None:
        return str(key["id"])
    return f"{key['id']} ({'expired' if key['expired'] else 'expires'} {moment(key['expires_at'])})"


def moment(text: str | None) -> str:
    """A time to the minute, in UTC."""
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M") if text else "-"


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with the cells under one another; columns of numbers stand to the right."""
    cells = [list(column) for column in zip(head, *rows, strict=True)]
    for column in cells:
        width = max(map(len, column))
        numeric = bool(rows) and all(_is_number(cell) for cell in column[1:])
        column[:] = [cell.rjust(width) if numeric else cell.ljust(width) for cell in column]
    return ["  ".join(line).rstrip() for line in zip(*cells, strict=True)]


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").isdigit()
