"""Runs a function once with marks for values: it yields a graph, or the line that needs a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from pando.errors import BadProgram, UnknownName
from pando.programs.document import (
    AskStep,
    Node,
    Read,
    Step,
    Writer,
    asks,
    messages_of,
    text_of,
    unset_read,
)
from pando.programs.place import mistake
from pando.programs.state import Run, State
from pando.programs.value import NOTICED, OPEN, Marks, NeedsValue, Part

Function = Callable[[State], Any]
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Traced:
    """What tracing found. needs: why and at which line there is no graph; else None.

    reads: values that the function read, without asking what they are.
    """

    steps: list[Step]
    needs: str | None = None
    reads: int = 0
    returned: Any = None

    @property
    def is_graph(self) -> bool:
        """Whether the program is one request; else it runs as a session."""
        return self.needs is None

    def nodes(self) -> list[Node]:
        """The graph's JSON."""
        return Writer().nodes(self.steps)


class Tracing:
    """A Reader for which values are marks."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps
        self._marks = Marks(next(_numbers))

    @property
    def reads(self) -> int:
        """How many values were read."""
        return self._marks.count

    def read(self, name: str) -> Read:
        """A mark; a list of values can't have one."""
        [ask] = [one for one in asks(self._steps) if one.name == name]
        if ask.fields.get("n", 1) > 1:
            raise NeedsValue(f"the list of values {name!r}")
        return self._marks.value(name)

    def parts(self, text: str) -> list[Part]:
        """As Reader.parts."""
        return self._marks.parts(text)

    def text(self, steps: Sequence[Step]) -> str:
        """Text without values is known."""
        return text_of(self._known(steps, "the text"), {})

    def messages(self, steps: Sequence[Step]) -> list[dict[str, str]]:
        """As text."""
        return messages_of(self._known(steps, "the messages"), {})

    def _known(self, steps: Sequence[Step], what: str) -> Sequence[Step]:
        if self._marks.count or any(isinstance(one, AskStep) for one in asks(steps, forks=False)):
            raise NeedsValue(what)
        return steps


def trace(function: Function) -> Traced:
    """Runs the function with marks. Raises what it raises before it has read a value."""
    steps: list[Step] = []
    tracing = Tracing(steps)
    noticed: list[NeedsValue] = []
    token = NOTICED.set(noticed)
    try:
        returned = function(State(Run(tracing), steps))
    except NeedsValue as need:
        return Traced(steps, str(need))
    except (BadProgram, UnknownName):
        raise
    except Exception as error:
        # A mark in the place of a text can break whatever takes it; with values it may hold.
        if not tracing.reads:
            raise
        return Traced(steps, f"{type(error).__name__} with values that aren't known yet: {error}")
    finally:
        NOTICED.reset(token)
    if noticed:
        return Traced(steps, str(noticed[0]))
    if found := unset_read(steps):
        place, name = found
        return Traced(steps, f"{place}: reads {name!r}, which is set behind it in the graph")
    return Traced(steps, None, tracing.reads, returned)


class Replay:
    """A Reader for which all values are known: the function as it is with them."""

    def __init__(self, values: Mapping[str, Read]) -> None:
        self._values = values

    def read(self, name: str) -> Read:
        """The value."""
        return self._values[name]

    def parts(self, text: str) -> list[Part]:
        """As Reader.parts."""
        return literal(text)

    def text(self, steps: Sequence[Step]) -> str:
        """As Reader.text."""
        return text_of(steps, self._values)

    def messages(self, steps: Sequence[Step]) -> list[dict[str, str]]:
        """As Reader.messages."""
        return messages_of(steps, self._values)


def literal(text: str) -> list[Part]:
    """A text that holds no value. Raises BadProgram for another run's."""
    if OPEN in text:
        raise mistake("This text holds a value of another run; read it from the result.")
    return [text] if text else []


@dataclass(frozen=True, slots=True)
class Checked:
    """A run of the function with values. is_same: it makes the graph that was traced."""

    is_same: bool
    returned: Any = None


def check(function: Function, traced: Traced, values: Mapping[str, Read]) -> Checked:
    """Whether the function, run with the values that its graph gave, makes that same graph."""
    steps: list[Step] = []
    try:
        returned = function(State(Run(Replay(values)), steps))
    except Exception:
        return Checked(is_same=False)  # a session shows whether it is an error
    same = Writer().nodes(steps) == Writer(known=values).nodes(traced.steps)
    return Checked(same, returned)
