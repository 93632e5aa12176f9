"""What an end of a request means, given what was done to the fleet meanwhile."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.chaos.answers import Told
from loadtest.chaos.asks import Ask

# So long behind a fault a worker may still be missing: it loads.
_GRACE_S = 30.0


class Outcome(enum.Enum):
    """How a request ended. The last two must not be."""

    RIGHT = "right"
    LIMITED = "refused by a limit (429)"
    REFUSED = "refused while a fault lasted (503)"
    HUNG_UP = "hung up by its client"
    CUT = "cut with its gateway"
    WRONG = "wrong"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when something lasted, in seconds of the run; what: which fault, or gateway."""

    what: str
    began: float
    ended: float = float("inf")

    def meets(self, other: Span, grace_s: float = 0.0) -> bool:
        """Whether both lasted at one time, the grace behind this one included."""
        return self.began <= other.ended and other.began <= self.ended + grace_s


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known of a request besides its end. limited: whether its tenant has limits."""

    span: Span
    limited: bool
    faults: tuple[Span, ...]
    outages: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, and for the last two what speaks for it."""

    outcome: Outcome
    why: str = ""


def judge(ask: Ask, told: Told, expected: str, around: Circumstances) -> Verdict:
    """Returns what the end means. expected: the body that an unharmed fleet gave."""
    if told.hung_up:
        return Verdict(Outcome.HUNG_UP)
    if told.broken:
        return _broken(told, around)
    if told.status in (429, 503):
        return _refused(told, around)
    return _answered(ask, told, expected)


def _answered(ask: Ask, told: Told, expected: str) -> Verdict:
    if told.status != 200 or told.error:
        return Verdict(Outcome.LOST, f"{told.status} {ask.kind}: {told.error}")
    if not told.done or not told.finished:
        return Verdict(Outcome.LOST, f"{ask.kind}: the answer has no end")
    if told.body != expected:
        return Verdict(Outcome.WRONG, f"{ask.kind}: {told.body} instead of {expected}")
    return Verdict(Outcome.RIGHT)


def _broken(told: Told, around: Circumstances) -> Verdict:
    """Only a gateway that went takes its clients' connections along."""
    gateway = around.span.what
    if any(one.meets(around.span) for one in around.outages if one.what == gateway):
        return Verdict(Outcome.CUT)
    return Verdict(Outcome.LOST, told.error)


def _refused(told: Told, around: Circumstances) -> Verdict:
    """A refusal has to have its form, and its reason."""
    error = _told(told.error)
    said = f"{told.status} {told.error}"
    if not told.headers.get("retry-after") or not error.get("code") or not error.get("message"):
        return Verdict(Outcome.LOST, f"a refusal without its form: {said}")
    if told.status == 429:
        return Verdict(Outcome.LIMITED) if around.limited else Verdict(Outcome.LOST, said)
    if any(one.meets(around.span, _GRACE_S) for one in around.faults):
        return Verdict(Outcome.REFUSED, str(error["code"]))
    return Verdict(Outcome.LOST, said)


def _told(error: str) -> Mapping[str, Any]:
    """The error of a refusal's body; empty where it is none."""
    try:
        found = json.loads(error)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
