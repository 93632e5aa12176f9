"""Times, ids and numbers as programs write them, in many forms."""

from __future__ import annotations

import base64
import random
import string
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

Value = Callable[[random.Random], str]

_BASE62 = string.ascii_letters + string.digits
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def moment(rng: random.Random) -> datetime:
    """Some second between 2024 and 2027."""
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(94_000_000))


def _written(pattern: str) -> Value:
    return lambda rng: moment(rng).strftime(pattern)


def _ordinal(rng: random.Random) -> str:
    at = moment(rng)
    ending = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}.get(at.day, "th")
    return f"{at.day}{ending} of {at:%B} {at.year}"


TIMES: tuple[Value, ...] = (
    lambda rng: moment(rng).isoformat(),
    lambda rng: moment(rng).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    lambda rng: format_datetime(moment(rng)),
    _written("%A, %B %d, %Y"),
    _written("%A, %d %B %Y, %H:%M"),
    _written("%b %d, %Y %I:%M %p"),
    _written("%m/%d/%Y %I:%M:%S %p"),
    _written("%d.%m.%Y, %H:%M Uhr"),
    _written("%a %b %d %H:%M:%S %Y"),
    _written("%Y-%m-%d %H:%M:%S.%f"),
    _written("%Y/%m/%d %H:%M (Europe/Berlin)"),
    _written("%Y%m%d-%H%M%S"),
    _written("%Y年%m月%d日 %H時%M分"),
    _written("%H:%M:%S UTC"),
    _written("%B %Y"),
    _ordinal,
    lambda rng: str(int(moment(rng).timestamp())),
    lambda rng: str(int(moment(rng).timestamp() * 1000) + rng.randrange(1000)),
    lambda rng: f"{moment(rng).timestamp() + rng.random():.6f}",
)
UUIDS: tuple[Value, ...] = (
    lambda rng: str(_uuid(rng)),
    lambda rng: str(_uuid(rng)).upper(),
    lambda rng: f"urn:uuid:{_uuid(rng)}",
    lambda rng: f"{{{_uuid(rng)}}}",
    lambda rng: f"session/{_uuid(rng)}/v1",
)
IDS: tuple[Value, ...] = (
    lambda rng: rng.randbytes(16).hex(),
    lambda rng: rng.randbytes(8).hex(),
    lambda rng: f"00-{rng.randbytes(16).hex()}-{rng.randbytes(8).hex()}-01",
    lambda rng: base64.b64encode(rng.randbytes(18)).decode(),
    lambda rng: base64.urlsafe_b64encode(rng.randbytes(16)).decode(),
    lambda rng: "01" + "".join(rng.choices(_CROCKFORD, k=24)),
    lambda rng: "req_" + "".join(rng.choices(_BASE62, k=20)),
    lambda rng: f"sess-{rng.randbytes(6).hex()}",
    lambda rng: "call_" + "".join(rng.choices(_BASE62, k=24)),
)
COUNTERS: tuple[Value, ...] = (
    lambda rng: f"turn {rng.randrange(2, 99)}",
    lambda rng: f"request #{rng.randrange(1000, 99999)}",
    lambda rng: f"{rng.randrange(1000, 999999):,} credits left",
    lambda rng: f"ticket {rng.randrange(10**6):06d}",
    lambda rng: f"build 1.{rng.randrange(40)}.{rng.randrange(400)}",
    lambda rng: f"attempt {rng.randrange(1, 9)} of 9",
    lambda rng: f"balance: {rng.randrange(10**4)}.{rng.randrange(10, 99)} EUR",
    lambda rng: f"step-{rng.randrange(100)}",
)


def two(rng: random.Random, forms: tuple[Value, ...]) -> tuple[str, str]:
    """Two values of one form that differ."""
    form = rng.choice(forms)
    first = second = form(rng)
    while first == second:
        second = form(rng)
    return first, second


def _uuid(rng: random.Random) -> uuid.UUID:
    return uuid.UUID(bytes=rng.randbytes(16), version=4)
