"""How a part differs from one that it resembles: the widest digest that is equal says it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from gateway.doctor.finding import OF_VALUES, Reason
from gateway.doctor.shape import BLOCK_CHARS, PartShape, Value
from gateway.doctor.volatile import ValueClass

FEW_TOOLS = 2
# The stronger first: a random id may look like a number.
_STRENGTH = list(ValueClass)


@dataclass(frozen=True, slots=True)
class Likeness:
    """A difference. offset: characters in front of it; None: all of the part, or unknown."""

    reason: Reason
    offset: int | None = None
    value: ValueClass | None = None
    detail: str = ""


def likeness(old: PartShape, new: PartShape) -> Likeness | None:
    """What the new one differs by; None: they are not alike. The narrowest that is equal counts."""
    reason, detail = Reason.TEMPLATE_DRIFT, ""
    if new.window and _first_block(old, new) >= new.window:
        return None  # they differ behind what is compared
    if new.form == old.form:
        return Likeness(reason, detail="variables")
    if new.spaced == old.spaced:
        reason, detail = Reason.WHITESPACE, _space(old, new)
    elif new.plain == old.plain:
        detail = "marks"
    elif new.tools and sorted(new.tools) == sorted(old.tools):
        reason = Reason.KEY_ORDER if new.tools == old.tools else Reason.TOOL_ORDER
    elif new.masked == old.masked:
        return _changed(old, new)
    elif new.bag and new.bag == old.bag:
        reason = Reason.KEY_ORDER
    elif new.head and (new.head == old.head or new.tail == old.tail):
        detail = "text"
    else:
        return None
    return Likeness(reason, _first_block(old, new), detail=detail)


def tools_changed(old: PartShape, new: PartShape) -> Likeness | None:
    """Tools that were added or removed, where nearly all stayed: else it is another list."""
    before, now = set(old.tools), set(new.tools)
    if before == now or len(before ^ now) > max(FEW_TOOLS, len(before | now) // 5):
        return None
    told = f"{len(now - before)}_added_{len(before - now)}_removed"
    return Likeness(Reason.TOOLS_CHANGED, detail=told)


def _changed(old: PartShape, new: PartShape) -> Likeness | None:
    """The first value that is another one."""
    for was, is_now in zip_longest(old.values, new.values):
        if was is None or is_now is None or was.digest != is_now.digest:
            told: list[Value] = [one for one in (is_now, was) if one is not None]
            kind = min((one.kind for one in told), key=_STRENGTH.index)
            return Likeness(OF_VALUES[kind], told[0].offset, kind)
    return None


def _space(old: PartShape, new: PartShape) -> str:
    """What kind of space or invisible characters it is."""
    if old.num_edges != new.num_edges:
        return "bos"
    if old.num_newlines != new.num_newlines:
        return "newline"
    return "invisible" if old.num_odd != new.num_odd else "space"


def _first_block(old: PartShape, new: PartShape) -> int:
    """Where the first block begins that differs."""
    for at in range(0, min(len(old.blocks), len(new.blocks)), 4):
        if old.blocks[at : at + 4] != new.blocks[at : at + 4]:
            return at // 4 * BLOCK_CHARS
    return min(len(old.blocks), len(new.blocks)) // 4 * BLOCK_CHARS
