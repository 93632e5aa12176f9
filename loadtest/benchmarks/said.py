"""What a command's output says: its table as columns and rows, its last line as figures.

Both are as `loadtest.report` shows them; whatever else was printed is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

# Wide enough for every table, so that no cell is broken; rich reads it.
ENVIRONMENT = {"COLUMNS": "400", "PYTHONUTF8": "1", "NO_COLOR": "1"}
MAX_CELL_CHARS = 120
MAX_LINES, MAX_LINE_CHARS = 20, 160
_LINE = re.compile(r"(?:[\w-]+: )?(?:\w+=\S+)(?: \w+=\S+)*")
_HEAD, _ROW = "┃", "│"


@dataclass(frozen=True, slots=True)
class Said:
    """figures: by name, as they were printed; empty: there was no such line.

    text: what stood in front of them, where there was no table.
    """

    figures: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    text: tuple[str, ...] = ()


def read(output: str) -> Said:
    """Returns what the output says; of several tables and lines the last ones count."""
    lines = [clean(line) for line in output.splitlines()]
    told = [number for number, line in enumerate(lines) if _LINE.fullmatch(line)]
    if not told:
        return Said()
    columns, rows = _table(lines)
    before = [line[:MAX_LINE_CHARS] for line in lines[: told[-1]] if line]
    text = () if columns else tuple(before[-MAX_LINES:])
    return Said(_figures(lines[told[-1]]), columns, rows, text)


def clean(text: str) -> str:
    """Returns the text without what cannot be printed, and without space around it."""
    return "".join(one if one.isprintable() else " " for one in text).strip()


def _figures(line: str) -> dict[str, str]:
    pairs = (word.split("=", 1) for word in line.split(" ") if "=" in word)
    return {name: value[:MAX_CELL_CHARS] for name, value in pairs}


def _table(lines: Sequence[str]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    heads = [number for number, line in enumerate(lines) if line.startswith(_HEAD)]
    if not heads:
        return (), ()
    columns = _cells(lines[heads[-1]], _HEAD)
    rows = [_cells(line, _ROW) for line in lines[heads[-1] :] if line.startswith(_ROW)]
    return columns, tuple(row for row in rows if len(row) == len(columns))


def _cells(line: str, wall: str) -> tuple[str, ...]:
    return tuple(cell.strip()[:MAX_CELL_CHARS] for cell in line.strip(wall).split(wall))
