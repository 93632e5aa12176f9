"""A planted fault: one exact text of one file, replaced by another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class LostFault(Exception):
    """The text that a fault replaces isn't there exactly once; the list is out of date."""


@dataclass(frozen=True, slots=True)
class Fault:
    """name: its kind, in short. says: what is wrong. tests: the files that should notice it."""

    name: str
    says: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, source: str) -> str:
        """Returns the file's text with the fault in it. Raises LostFault."""
        count = source.count(self.old)
        if count != 1:
            raise LostFault(
                f"{self.name}: {self.file} has its text {count} times; it must have it once"
            )
        return source.replace(self.old, self.new)

    def plant(self, folder: Path) -> None:
        """Puts the fault into a copy of the repository. Raises LostFault."""
        path = folder / self.file
        path.write_text(self.planted(path.read_text("utf-8")), "utf-8")


@dataclass(frozen=True, slots=True)
class Room:
    """A file, and the tests that should notice what is wrong in it, the quickest first."""

    file: str
    tests: tuple[str, ...]

    def fault(self, name: str, says: str, old: str, new: str) -> Fault:
        """Returns a fault of this file."""
        return Fault(name, says, self.file, old, new, self.tests)
