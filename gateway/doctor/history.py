"""Where a prompt parts from all that was seen, and what it resembles there. Pure.

Three looks, the first that finds something counts:

    beside      a part behind the same beginning that differs a little         volatile, space ...
    branch      a talk with the same beginning and the same parts further on   rewritten
    elsewhere   the same parts behind another beginning                        cut; front changed

A part that nobody shares by design (a user's message) is only called changed where the talk goes
on as the other one did, or where much of it is the same behind the place: else two questions that
differ in a number would count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.doctor.finding import Reason
from gateway.doctor.likeness import Likeness, likeness, tools_changed
from gateway.doctor.memory import Memory, Sight
from gateway.doctor.shape import PartShape

# Behind a value in a message, so many characters that are the same say that it was meant to be.
SAME_CHARS = 256
# Parts that are compared behind the place, and that are looked for elsewhere.
COMPARED = 64
SOUGHT = 4
# A shorter message says nothing by itself.
TELLING_CHARS = 32
# Parts that may have changed places.
SHUFFLED = 8


@dataclass(frozen=True, slots=True)
class Fault:
    """A difference and its place. part: of the new prompt. end: the parts in front of where both
    cease to be alike. at: when the other one was seen. beyond: bytes that are alike behind `end`.
    """

    like: Likeness
    part: int
    end: int
    at: float
    beyond: int = 0


@dataclass(frozen=True, slots=True)
class Fresh:
    """What is new of a prompt: shapes of its parts from `depth` on. beginning: the digest up to
    there, b"" for none. num_static: as of Parts. windows: it is a plain text.
    """

    owner: bytes
    beginning: bytes
    depth: int
    shapes: Sequence[PartShape]
    num_static: int
    windows: bool

    @property
    def is_static(self) -> bool:
        """Whether the first new part is tools or a system message."""
        return self.depth < self.num_static


class History:
    """Looks into a memory; writes nothing."""

    def __init__(self, memory: Memory):
        self._memory = memory

    def fault(self, fresh: Fresh) -> Fault | None:
        """What the new parts resemble, if anything. There is at least one."""
        return self._beside(fresh) or self._branch(fresh) or self._elsewhere(fresh)

    def _beside(self, fresh: Fresh) -> Fault | None:
        shape = fresh.shapes[0]
        for digest in leads_of(fresh.owner, fresh.beginning, shape):
            key = self._memory.lead(digest)
            sight = self._memory.get(key)
            if sight is None or sight.shape is None:
                continue
            like = likeness(sight.shape, shape)
            if like is None:
                continue
            run = self._run(key, fresh, 1)
            if _is_meant(fresh, like, sight.shape, run):
                others = list(self._memory.behind(key, COMPARED))
                beyond = sum(one.size for one in others) if fresh.windows else 0
                # Behind the other prompt's end lies its answer, which this one goes on from.
                has_answer = not fresh.windows and run == len(others)
                end = fresh.depth + 1 + run + has_answer
                return Fault(like, fresh.depth, end, sight.at, beyond)
        return None

    def _branch(self, fresh: Fresh) -> Fault | None:
        """A talk that began as this one, and has the same parts behind another one."""
        if fresh.windows or not fresh.depth:
            return None
        key = fresh.owner + fresh.beginning
        others = list(self._memory.behind(key, COMPARED))
        forms = [one.form for one in others]
        mine = [shape.form for shape in fresh.shapes]
        after = _common(forms[1:], mine[1:])
        shared = max(fresh.depth - fresh.num_static, 0)
        if after and after + min(shared, 1) >= 2 and not fresh.is_static:
            like = Likeness(Reason.HISTORY_REWRITTEN, detail="changed")
            return Fault(like, fresh.depth, fresh.depth + 1 + after, others[0].at)
        for count in range(2, min(len(forms), len(mine), SHUFFLED) + 1):
            if forms[:count] != mine[:count] and sorted(forms[:count]) == sorted(mine[:count]):
                like = Likeness(Reason.HISTORY_REWRITTEN, detail="reordered")
                return Fault(like, fresh.depth, fresh.depth + count, others[0].at)
        return None

    def _elsewhere(self, fresh: Fresh) -> Fault | None:
        """The same parts, seen behind another beginning; nothing of the talk itself is known."""
        if fresh.windows or fresh.depth > fresh.num_static:
            return None
        for found, shape in enumerate(fresh.shapes[:SOUGHT]):
            key = self._memory.lead(part_lead(fresh.owner, shape))
            known = self._memory.get(key)
            if known is None:
                continue
            skipped, sight = self._back(fresh, found, known)
            end = found + 1 + self._run(key, fresh, found + 1)
            if end - skipped < 2 and fresh.depth + skipped >= fresh.num_static:
                continue
            like = self._moved(fresh, skipped, sight, end - skipped)
            if like is not None:
                return Fault(like, fresh.depth, fresh.depth + end, sight.at)
        return None

    def _back(self, fresh: Fresh, skipped: int, sight: Sight) -> tuple[int, Sight]:
        """The first of the parts that are the same, from the one that was found."""
        while skipped and (before := self._memory.get(sight.before)) is not None:
            if not before.form or before.form != fresh.shapes[skipped - 1].form:
                break
            skipped, sight = skipped - 1, before
        return skipped, sight

    def _moved(self, fresh: Fresh, skipped: int, sight: Sight, run: int) -> Likeness | None:
        """Why the same part has another beginning."""
        tools = self._tools(fresh, skipped, sight)
        if tools is not None:
            return tools
        shift = sight.index - fresh.depth - skipped
        if fresh.depth + skipped < fresh.num_static:
            is_first = not shift and not skipped
            return Likeness(Reason.TEMPLATE_DRIFT, detail="variables") if is_first else None
        if shift > 0:
            detail = f"{shift}_messages" if not skipped else "summarised"
            return Likeness(Reason.HISTORY_TRUNCATED, detail=detail)
        if shift < 0 or not skipped:
            is_same = not shift and not fresh.depth
            return Likeness(Reason.TEMPLATE_DRIFT, detail="variables") if is_same else None
        if fresh.is_static:
            return Likeness(Reason.TEMPLATE_DRIFT, detail="text")
        return Likeness(Reason.HISTORY_REWRITTEN, detail="changed") if run >= 2 else None

    def _tools(self, fresh: Fresh, skipped: int, sight: Sight) -> Likeness | None:
        """Whether the tools in front are others; only where they come first of all."""
        if fresh.depth:
            return None
        mine = fresh.shapes[0] if fresh.shapes[0].tools else None
        first = self._first(sight)
        theirs = first.shape if first is not None and first.name == "tools" else None
        if mine is not None and theirs is not None and skipped:
            return tools_changed(theirs, mine)
        if mine is not None and theirs is None and skipped:
            return Likeness(Reason.TOOLS_CHANGED, detail=f"{len(mine.tools)}_added_0_removed")
        if mine is None and theirs is not None:
            return Likeness(Reason.TOOLS_CHANGED, detail=f"0_added_{len(theirs.tools)}_removed")
        return None

    def _first(self, sight: Sight) -> Sight | None:
        """The first part of the prompt in which the sight stands."""
        found: Sight | None = sight
        for _ in range(COMPARED):
            if found is None or not found.before:
                return found
            found = self._memory.get(found.before)
        return None

    def _run(self, key: bytes, fresh: Fresh, start: int) -> int:
        """How many parts from `start` on are those that followed the sight."""
        others = [one.shape for one in self._memory.behind(key, COMPARED)]
        if fresh.windows:
            theirs = [one.masked if one else b"" for one in others]
            return _common(theirs, [shape.masked for shape in fresh.shapes[start:]])
        forms = [one.form if one else b"" for one in others]
        return _common(forms, [shape.form for shape in fresh.shapes[start:]])


def leads_of(owner: bytes, beginning: bytes, shape: PartShape) -> list[bytes]:
    """Under what a part is found behind a beginning, by what resembles it."""
    front = owner + beginning
    return [front + one for one in (shape.masked, shape.bag, shape.head, shape.tail) if one]


def part_lead(owner: bytes, shape: PartShape) -> bytes:
    """Under what the same part is found, wherever it stands."""
    return owner + b"part" + shape.form


def _is_meant(fresh: Fresh, like: Likeness, old: PartShape, run: int) -> bool:
    """Whether the part was meant to be the same: no two questions that look alike.

    A talk that goes on behind it, and whose beginning was never seen, was seen otherwise.
    """
    shape = fresh.shapes[0]
    if run or (len(fresh.shapes) > 1 and not fresh.windows and like.detail != "text"):
        return True
    if like.detail == "text":
        return shape.head == old.head and shape.tail == old.tail
    if fresh.is_static:
        return True
    place = like.offset or 0
    return min(shape.num_chars, old.num_chars) - place >= SAME_CHARS


def _common(first: Sequence[bytes], second: Sequence[bytes]) -> int:
    """How many are the same from the start; what nobody looked at is like nothing."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other or not one:
            break
        count += 1
    return count
