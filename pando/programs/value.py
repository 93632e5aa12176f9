"""What stands for a value while a program is traced: text with marks, which only joining keeps.

A Value is a `str`, so that `+`, f-strings and `str.join` carry its mark along. Whatever would need
the true text (`==`, `len`, `in`, slices, any method) raises NeedsValue. What C code does with its
raw characters, and what is done with a plain text that a mark was formatted into, can't be seen
here: `execution` runs the function again with true values and compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

from pando.programs.place import mistake, user_place

# Of Unicode's last private plane; no tokenizer and no language gives them a meaning.
OPEN, CLOSE = "\U0010fa10", "\U0010fa11"
_MARK = re.compile(f"{OPEN}(\\d+):(\\d+){CLOSE}")


# Those of the trace under way: a bare `except` of the user's can take one, but not hide it.
NOTICED: ContextVar[list[NeedsValue] | None] = ContextVar("NOTICED", default=None)


class NeedsValue(BaseException):
    """The function asks what a value is. Not an Exception: `except Exception` must not take it."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.place = user_place()
        super().__init__(f"{self.place}: {what}")
        noticed = NOTICED.get()
        if noticed is not None:
            noticed.append(self)


@dataclass(frozen=True, slots=True)
class Var:
    """A value by its name in the graph."""

    name: str


Part = str | Var


class Value(str):
    """The text of a value that isn't known yet, alone or among literal text."""

    __slots__ = ()

    def __str__(self) -> str:
        return self

    def __format__(self, spec: str) -> str:
        if spec:
            raise NeedsValue(f"a value is formatted with {spec!r}")
        return self

    def __add__(self, other: Any) -> Any:
        return Value(str.__add__(self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Value(str.__add__(other, self)) if isinstance(other, str) else NotImplemented


def _asks(name: str) -> Callable[..., NoReturn]:
    operation = name if name.startswith("__") else f".{name}()"

    def ask(*_: Any, **__: Any) -> NoReturn:
        raise NeedsValue(f"{_OPERATIONS.get(name, operation)} of a value")

    return ask


_OPERATIONS = {
    "__eq__": "==",
    "__ne__": "!=",
    "__lt__": "<",
    "__le__": "<=",
    "__gt__": ">",
    "__ge__": ">=",
    "__len__": "len()",
    "__bool__": "the truth",
    "__int__": "int()",
    "__float__": "float()",
    "__index__": "int()",
    "__iter__": "iteration",
    "__contains__": "'in'",
    "__getitem__": "an item or slice",
    "__hash__": "a look-up",
    "__repr__": "repr()",
    "__mod__": "%",
    "__mul__": "*",
    "__rmul__": "*",
}
_KEPT = {
    *("__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__delattr__"),
    *("__doc__", "__init_subclass__", "__subclasshook__", "__dir__", "__reduce__"),
    *("__reduce_ex__", "__getnewargs__", "__getstate__", "__sizeof__"),
    *("__str__", "__format__", "__add__", "__radd__", "__rmod__", "maketrans"),
}
for _name in {*dir(str), "__bool__", "__int__", "__float__", "__index__"} - _KEPT:
    setattr(Value, _name, _asks(_name))


class Marks:
    """One run's marks. number: of the run, so that another run's marks are told apart."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._names: list[str] = []

    @property
    def count(self) -> int:
        """How often a value was read."""
        return len(self._names)

    def value(self, name: str) -> Value:
        """A text that stands for the value of that name."""
        self._names.append(name)
        return Value(f"{OPEN}{self._number}:{len(self._names) - 1}{CLOSE}")

    def parts(self, text: str) -> list[Part]:
        """The text, with values where marks were. Raises NeedsValue for a mark that was cut."""
        found: list[Part] = []
        pieces = _MARK.split(text)
        for literal, number, index in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=False):
            if int(number) != self._number:
                raise mistake("This text holds a value of another run; read it from the result.")
            found += [literal, Var(self._names[int(index)])]
        found.append(pieces[-1])
        if any(isinstance(part, str) and (OPEN in part or CLOSE in part) for part in found):
            raise NeedsValue("a text with part of a value")
        return [part for part in found if part != ""]


def refuse_marks(*texts: str) -> None:
    """What shapes an answer (stop, regex, ...) can't stand for a value: it is asked for first."""
    if any(str.__contains__(text, OPEN) for text in texts):
        raise NeedsValue("a value in an argument that only takes text")
