"""Panels in their places, drawn small: a picture of a dashboard as Grafana would lay it out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from tests.deploy.dashboards.board import Board, Shown, gapped
from tests.deploy.dashboards.server import Span

_WIDTH, _ROW_IN = 24, 0.30
_MAX_LEGEND = 6
_COLOURS = ("#3274d9", "#e0b400", "#56a64b", "#e02f44", "#8f3bb8", "#ff780a", "#37872d", "#7c7c7c")
Form = Callable[[float], str]


def draw(board: Board, span: Span, path: Path) -> None:
    """The picture is in the file, as SVG with its text as text."""
    pyplot.switch_backend("svg")
    rows = max(one.place.y + one.place.h for one in board.panels)
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": board.name,
        "font.size": 7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "path.simplify_threshold": 0.5,
    }
    with matplotlib.rc_context(settings):
        figure = pyplot.figure(figsize=(11, rows * _ROW_IN + 0.5))
        figure.suptitle(board.title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        top = 1 - 0.4 / (rows * _ROW_IN + 0.5)
        for one in board.panels:
            place = one.place
            left, width = place.x / _WIDTH + 0.045, place.w / _WIDTH - 0.065
            width -= 0.03 if one.right else 0
            bottom = top * (1 - (place.y + place.h) / rows) + 0.30 * top / rows * place.h
            axes = figure.add_axes((left, bottom, width, 0.56 * top * place.h / rows))
            _panel(axes, one, span)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def _panel(axes: Axes, one: Shown, span: Span) -> None:
    axes.set_title(one.title, loc="left", fontsize=8)
    axes.set_xlim(0, (span.end - span.begin) / 60)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} min"))
    axes.grid(visible=True, color="#dddddd", linewidth=0.4)
    _scale(axes, one.unit)
    other = axes.twinx() if one.right else axes
    for number, line in enumerate(one.lines):
        is_right = line.name in one.right
        times, values = gapped(line, span)
        (other if is_right else axes).plot(
            times,
            values,
            lw=1,
            ms=3,
            marker="." if len(values) < 3 else "",
            color=_COLOURS[number % len(_COLOURS)],
            label=line.name,
        )
        if is_right:
            other.spines.right.set_visible(True)
            _scale(other, one.right[line.name])
    axes.set_ylim(bottom=0)
    other.set_ylim(bottom=0)
    _legend(axes, other)


def _scale(axes: Axes, unit: str) -> None:
    form = _FORMS.get(unit, _short)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))


def _legend(axes: Axes, other: Axes) -> None:
    """The first lines' names below the panel, and how many more there are."""
    handles, labels = axes.get_legend_handles_labels()
    if other is not axes:
        further = other.get_legend_handles_labels()
        handles, labels = handles + further[0], labels + further[1]
    if not handles:
        return
    more = len(labels) - _MAX_LEGEND
    if more > 0:
        labels = [*labels[: _MAX_LEGEND - 1], f"{labels[_MAX_LEGEND - 1]} (and {more} more)"]
    columns = 2 if max(map(len, labels)) > 24 else 4
    axes.legend(
        handles[: len(labels)],
        labels,
        loc="upper left",
        bbox_to_anchor=(-0.02, -0.14),
        fontsize=6,
        ncols=columns,
        frameon=False,
    )


def _seconds(value: float) -> str:
    if value >= 1 or value == 0:
        return f"{value:g} s"
    return f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"


def _short(value: float) -> str:
    return f"{value / 1000:g} k" if value >= 1000 else f"{value:g}"


_FORMS: dict[str, Form] = {
    "s": _seconds,
    "percentunit": lambda value: f"{value:.0%}",
    "reqps": lambda value: f"{value:g} /s",
}
