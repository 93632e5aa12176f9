"""A page that people write, with blocks that are written here.

prose
<!-- figures: NAME -->
what was there is replaced
<!-- end -->
prose
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loadtest.errors import BadDocument

_MARK = re.compile(r"^<!-- (?:figures: (?P<name>[\w-]+)|(?P<end>end)) -->$", re.MULTILINE)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """text[start:end] lies between the two marks. section: the heading above it."""

    name: str
    start: int
    end: int
    section: str


def blocks(text: str) -> dict[str, Block]:
    """Returns them by name. Raises BadDocument where marks do not come in pairs, or twice."""
    found: dict[str, Block] = {}
    opened: re.Match[str] | None = None
    for mark in _MARK.finditer(text):
        name = mark["name"]
        if (opened is None) == (name is None):
            raise BadDocument(f"the mark {mark[0]!r} in line {_line(text, mark)} has no partner")
        if name is not None:
            opened = mark
            continue
        assert opened is not None
        name = opened["name"]
        if name in found:
            raise BadDocument(f"there are two blocks {name!r}")
        found[name] = Block(name, opened.end() + 1, mark.start(), _section(text, mark.start()))
        opened = None
    if opened is not None:
        raise BadDocument(f"the block {opened['name']!r} has no end")
    return found


def check(text: str, names: Iterable[str]) -> None:
    """The text has a block for each name, and no other. Raises BadDocument."""
    found, wanted = set(blocks(text)), set(names)
    if missing := sorted(wanted - found):
        raise BadDocument(f"no block for: {', '.join(missing)}")
    if unknown := sorted(found - wanted):
        raise BadDocument(f"blocks that no command fills: {', '.join(unknown)}")


def replaced(text: str, contents: Mapping[str, str]) -> str:
    """Returns the text with these contents in its blocks; the other blocks stay."""
    found = sorted(blocks(text).values(), key=lambda block: -block.start)
    for block in found:
        if block.name in contents:
            text = f"{text[: block.start]}{contents[block.name]}\n{text[block.end :]}"
    return text


def anchor(section: str) -> str:
    """Returns what a link to the heading ends with."""
    return re.sub(r"[^\w -]", "", section.lower()).replace(" ", "-")


def _section(text: str, place: int) -> str:
    above = _HEADING.findall(text, 0, place)
    return str(above[-1]) if above else ""


def _line(text: str, mark: re.Match[str]) -> int:
    return text.count("\n", 0, mark.start()) + 1
