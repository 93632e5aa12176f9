"""An answer's text, as it comes, told apart into text, reasoning and calls.

    start ── <think> ──▶ thought ── </think> ──▶ gap ──▶ text ── trigger ──▶ head ──▶ arguments
      └────────────── anything else ──────────────────────▲                   ▲          │
                                                                              └─ between ─┘ close

What has come of it depends on the characters taken alone, not on the pieces they came in: whoever
goes on with a stream elsewhere takes the same text again and stands at the same place.
White space around reasoning, and between text and the first call, belongs to neither.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from worker.parts.formats import CallFormat
from worker.submission import ToolCallDelta

THINK, THOUGHT = "<think>", "</think>"


class Thinking(enum.Enum):
    """Whether an answer begins with reasoning: never, if it says so, or since the prompt does."""

    NONE = "none"
    OPEN = "open"
    BEGUN = "begun"


@dataclass(slots=True)
class Pieces:
    """What characters brought."""

    text: str = ""
    reasoning: str = ""
    calls: list[ToolCallDelta] = field(default_factory=list)

    def __add__(self, other: Pieces) -> Pieces:
        """Returns both, one behind the other."""
        return Pieces(
            self.text + other.text, self.reasoning + other.reasoning, self.calls + other.calls
        )


class _State(enum.Enum):
    START = enum.auto()
    THOUGHT = enum.auto()
    GAP = enum.auto()
    TEXT = enum.auto()
    HEAD = enum.auto()
    NAME = enum.auto()
    ARGUMENTS = enum.auto()
    TAIL = enum.auto()
    OVER = enum.auto()


class Splitter:
    """One choice's. calls: how they are written, None: nothing is one."""

    def __init__(self, thinking: Thinking, calls: CallFormat | None) -> None:
        self._calls = calls
        self._held = ""
        self._state = _State.GAP if calls is not None and calls.opens else _State.TEXT
        self._behind_thought = self._state
        if thinking is not Thinking.NONE:
            self._state = _State.START if thinking is Thinking.OPEN else _State.THOUGHT
            self._behind_thought = _State.GAP
        self._has_thought = False
        self._index = -1
        self._name = ""
        self._depth = 0
        self._in_string = self._is_escaped = False

    def push(self, text: str) -> Pieces:
        """Returns what is sure with these characters."""
        pieces = Pieces()
        rest = self._held + text
        self._held = ""
        while rest:
            before = (self._state, len(rest))
            rest = self._step(rest, pieces)
            if (self._state, len(rest)) == before:
                self._held = rest
                break
        return pieces

    def flush(self) -> Pieces:
        """Returns what was held back; nothing follows. A call that has only begun is none."""
        held, self._held = self._held, ""
        if self._state in (_State.START, _State.TEXT):
            return Pieces(text=held)
        if self._state is _State.GAP and held.strip():
            return Pieces(text=held)
        if self._state is _State.THOUGHT:
            return Pieces(reasoning=held.rstrip())
        return Pieces()

    def _step(self, rest: str, pieces: Pieces) -> str:
        """Takes characters from the front; returns what is left, all of it where more is needed."""
        if self._state is _State.OVER:
            return ""
        steps = {
            _State.START: self._start,
            _State.THOUGHT: self._thought,
            _State.GAP: self._gap,
            _State.TEXT: self._text,
            _State.ARGUMENTS: self._arguments,
        }
        return steps.get(self._state, self._between)(rest, pieces)

    def _start(self, rest: str, _: Pieces) -> str:
        begun = rest.lstrip()
        if begun.startswith(THINK):
            self._state = _State.THOUGHT
            return begun.removeprefix(THINK)
        if not THINK.startswith(begun):
            self._state = (
                _State.TEXT if self._calls is None or not self._calls.opens else _State.GAP
            )
        return rest

    def _thought(self, rest: str, pieces: Pieces) -> str:
        if not self._has_thought:
            rest = rest.lstrip()
            self._has_thought = bool(rest)
        thought, mark, behind = rest.partition(THOUGHT)
        if mark:
            pieces.reasoning += thought.rstrip()
            self._state = _State.GAP
            return behind
        kept = len(rest) - _begun(rest, THOUGHT)
        sure = rest[:kept].rstrip()
        pieces.reasoning += sure
        return rest[len(sure) :]

    def _gap(self, rest: str, _: Pieces) -> str:
        """White space in front of the answer."""
        rest = rest.lstrip()
        if rest:
            self._state = _State.TEXT
            if self._calls is not None and self._calls.opens:
                begins = rest.startswith(self._calls.trigger)
                self._state = _State.HEAD if begins else _State.TEXT
                if not begins:
                    self._calls = None
        return rest

    def _text(self, rest: str, pieces: Pieces) -> str:
        calls = self._calls
        if calls is None:
            pieces.text += rest
            return ""
        found = rest.find(calls.trigger)
        if found >= 0:
            pieces.text += rest[:found].rstrip()
            self._state = _State.HEAD
            return rest[found:]
        sure = rest[: len(rest) - _begun(rest, calls.trigger)].rstrip()
        pieces.text += sure
        return rest[len(sure) :]

    def _between(self, rest: str, pieces: Pieces) -> str:
        """In the fixed text around a name and its arguments."""
        calls = self._calls
        assert calls is not None
        if self._state is _State.NAME:
            name, mark, behind = rest.partition(calls.middle)
            if mark:
                self._index += 1
                pieces.calls.append(ToolCallDelta(self._index, name))
                self._state = _State.ARGUMENTS
            return behind if mark else rest
        if self._state is _State.HEAD:
            fixed = (calls.lead if self._index < 0 else calls.between) + calls.begin
            return self._fixed(rest, fixed, _State.NAME)
        return self._fixed(rest, calls.end, _State.HEAD)

    def _fixed(self, rest: str, fixed: str, following: _State) -> str:
        """Takes a fixed text; where something else stands, no call follows."""
        if rest.startswith(fixed):
            self._state = following
            return rest[len(fixed) :]
        if not fixed.startswith(rest):
            self._state = _State.OVER
        return rest

    def _arguments(self, rest: str, pieces: Pieces) -> str:
        """A JSON object, to the bracket that closes it."""
        for place, character in enumerate(rest):
            if self._is_escaped:
                self._is_escaped = False
            elif character == "\\":
                self._is_escaped = self._in_string
            elif character == '"':
                self._in_string = not self._in_string
            elif not self._in_string and character in "{[":
                self._depth += 1
            elif not self._in_string and character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._state = _State.TAIL
                    pieces.calls.append(ToolCallDelta(self._index, "", rest[: place + 1]))
                    return rest[place + 1 :]
        pieces.calls.append(ToolCallDelta(self._index, "", rest))
        return ""


def _begun(text: str, mark: str) -> int:
    """Returns how many characters at the end of a text a mark may have begun with."""
    longest = min(len(text), len(mark) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(mark[:size])), 0)
