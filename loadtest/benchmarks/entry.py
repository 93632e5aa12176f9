"""One command of the benchmarks: what it shows, and what is wanted of its figures."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# In a command: where its picture goes.
PICTURE = "{picture}"
_HOLDS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
}


@dataclass(frozen=True, slots=True)
class Bound:
    """What a figure should be. sign: one of >=, >, =, <, <=."""

    sign: str
    value: float

    def holds(self, told: str) -> bool:
        """Whether it is so; words and nan never are."""
        try:
            return _HOLDS[self.sign](float(told), self.value)
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"


@dataclass(frozen=True, slots=True)
class Entry:
    """command: behind `python -m`. shows: a sentence.

    figures: those of the last line that matter, with what is wanted of them, if anything is.
    limit_s: the command is ended after that. picture: the name of the file that it draws.
    is_long: not part of a plain run.
    """

    name: str
    command: tuple[str, ...]
    shows: str
    figures: Mapping[str, Bound | None]
    limit_s: float = 600.0
    picture: str = field(default="", kw_only=True)
    is_long: bool = field(default=False, kw_only=True)

    def arguments(self, pictures: Path) -> list[str]:
        """Returns the command with the place of its picture."""
        return [part.replace(PICTURE, str(pictures / self.picture)) for part in self.command]

    @property
    def words(self) -> str:
        """The command as somebody types it."""
        told = (part.replace(PICTURE, self.picture) for part in self.command)
        return " ".join(("python -m", *told))
