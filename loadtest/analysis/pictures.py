"""Findings as SVG: lines over a size, and bars. Plain text, nothing is loaded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 16, 56
COLOURS = ("#1b6e53", "#c2571a", "#5b5f97", "#8a6d1f", "#97235b")


@dataclass(frozen=True, slots=True)
class Point:
    """x: a size; y: a share of 1."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Line:
    """A row of points with a name; is_dashed: a bound."""

    name: str
    points: Sequence[Point]
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """Bars of one place, one for each name of the picture."""

    label: str
    heights: Sequence[float]


def lines(title: str, drawn: Sequence[Line], unit: str) -> str:
    """Shares from 0 to 100 % over sizes, which grow by doubling."""
    sizes = sorted({point.x for line in drawn for point in line.points})
    low, high = math.log2(sizes[0]), math.log2(sizes[-1])

    def place(x: float) -> float:
        part = (math.log2(x) - low) / (high - low) if high > low else 0.5
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    parts = [*_shares()]
    parts += [_label(place(one), short(one)) for one in sizes]
    for line, colour in zip(drawn, COLOURS, strict=False):
        told = " ".join(f"{place(one.x):.1f},{_height(one.y):.1f}" for one in line.points)
        dash = ' stroke-dasharray="5 4"' if line.is_dashed else ""
        parts.append(
            f'<polyline points="{told}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
        )
    names = [line.name for line in drawn]
    return _picture(title, [*parts, *_legend(names, unit)])


def bars(title: str, columns: Sequence[Column], names: Sequence[str], unit: str) -> str:
    """Shares from 0 to 100 % as groups of bars."""
    step = (WIDTH - LEFT - RIGHT) / max(len(columns), 1)
    each = step * 0.8 / max(len(names), 1)
    parts = [*_shares()]
    for number, column in enumerate(columns):
        begin = LEFT + number * step + step * 0.1
        parts.append(_label(begin + step * 0.4, column.label))
        for place, (share, colour) in enumerate(zip(column.heights, COLOURS, strict=False)):
            top = _height(share)
            parts.append(
                f'<rect x="{begin + place * each:.1f}" y="{top:.1f}" width="{each:.1f}" '
                f'height="{_height(0) - top:.1f}" fill="{colour}"/>'
            )
    return _picture(title, [*parts, *_legend(names, unit)])


def short(number: float) -> str:
    """A count in four characters or so."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.0f}"


def _height(share: float) -> float:
    return TOP + (1 - min(max(share, 0.0), 1.0)) * (HEIGHT - TOP - BOTTOM)


def _shares() -> Iterator[str]:
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _height(share)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" class="grid"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{share:.0%}</text>'


def _label(x: float, text: str) -> str:
    y = HEIGHT - BOTTOM + 16
    return f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{escape(text)}</text>'


def _legend(names: Sequence[str], unit: str) -> Iterator[str]:
    x, y = float(LEFT), HEIGHT - 10
    for name, colour in zip(names, COLOURS, strict=False):
        yield f'<rect x="{x:.0f}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{x + 14:.0f}" y="{y}">{escape(name)}</text>'
        x += 28 + 7 * len(name)
    yield f'<text x="{WIDTH - RIGHT}" y="{y}" text-anchor="end">{escape(unit)}</text>'


def _picture(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
