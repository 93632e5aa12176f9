"""What the check found: parts of rows of figures, as values, as a table, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Figure = float | int | str | bool
Status = Literal["ok", "wrong", "failed", "left out"]

# A figure of the name on the left is set against the machine's of the name on the right.
LIMITS = {"gb_s": "copy_gb_s", "tflop_s": "gemm_tflop_s"}


@dataclass(frozen=True, slots=True)
class Row:
    """What one measurement gave. wrong: it should have come out otherwise."""

    what: str
    figures: Mapping[str, Figure]
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """What one part gave. reason: why it failed or was left out."""

    name: str
    status: Status
    seconds: float = 0.0
    rows: Sequence[Row] = field(default_factory=tuple)
    reason: str = ""


def part_of(name: str, rows: Sequence[Row], seconds: float) -> Part:
    """Returns a part that ran to its end."""
    return Part(name, "wrong" if any(row.wrong for row in rows) else "ok", seconds, rows)


def parsed(text: str) -> Part:
    """Returns the part that `written` wrote."""
    read: dict[str, Any] = json.loads(text)
    read["rows"] = tuple(Row(**row) for row in read["rows"])
    return Part(**read)


def written(part: Part) -> str:
    """Returns a part as one line of JSON."""
    return json.dumps(asdict(part))


def with_shares(part: Part, machine: Mapping[str, Figure]) -> Part:
    """Returns the part with each rate's share of what the machine was measured to do."""
    rows = [Row(row.what, _shared(row.figures, machine), row.wrong) for row in part.rows]
    return Part(part.name, part.status, part.seconds, rows, part.reason)


def _shared(figures: Mapping[str, Figure], machine: Mapping[str, Figure]) -> dict[str, Figure]:
    found = dict(figures)
    for name, limit in LIMITS.items():
        rate, best = figures.get(name), machine.get(limit)
        if isinstance(rate, float) and isinstance(best, float) and best:
            found[f"{name}_share"] = rate / best
    return found


def lines(part: Part) -> list[str]:
    """Returns the part's lines of the table."""
    head = f"{part.name:<22} {part.status:<9} {part.seconds:6.1f} s  {part.reason}".rstrip()
    return [head, *(_line(row) for row in part.rows)]


def _line(row: Row) -> str:
    figures = "  ".join(f"{name}={_told(value)}" for name, value in row.figures.items())
    return f"  {'! ' if row.wrong else '  '}{row.what:<44} {figures}"


def _told(value: Figure) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
