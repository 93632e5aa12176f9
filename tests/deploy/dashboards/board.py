"""A dashboard as Grafana reads it: variables are filled in, then every target is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

from tests.deploy.dashboards.server import Prometheus, Series, Span


@dataclass(frozen=True, slots=True)
class Place:
    """In units of Grafana's grid, which is 24 wide."""

    x: int
    y: int
    w: int
    h: int


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a panel, under its legend."""

    name: str
    series: Series


@dataclass(frozen=True, slots=True)
class Shown:
    """A panel and what it shows. silent: the expressions that gave nothing.

    right: the units of those lines, by name, that have an axis of their own on the right.
    """

    title: str
    unit: str
    place: Place
    lines: Sequence[Line]
    silent: Sequence[str]
    right: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Board:
    """A whole dashboard."""

    name: str
    title: str
    panels: Sequence[Shown]


def shown(path: Path, prometheus: Prometheus, span: Span) -> Board:
    """What a dashboard's file shows over the span. Raises RuntimeError where a query is refused."""
    board = json.loads(path.read_text("utf-8"))
    values = variables(board, prometheus, span)
    panels = [_panel(panel, values, prometheus, span) for panel in board["panels"]]
    return Board(path.stem, board["title"], panels)


def variables(board: Mapping[str, Any], prometheus: Prometheus, span: Span) -> dict[str, str]:
    """What each variable stands for: the first value, or all of them where it may be all."""
    values = {"__rate_interval": f"{span.rate_s}s", "__interval": f"{span.step_s}s"}
    for variable in board["templating"]["list"]:
        if variable["type"] != "query":
            continue
        query = filled(variable["query"], values)
        match = re.fullmatch(r"label_values\((.*), *(\w+)\)", query)
        if match is None:
            raise RuntimeError(
                f"{variable['name']} is asked by {query!r}, which is no label_values"
            )
        found = prometheus.label_values(match[2], match[1], span)
        if not found:
            raise RuntimeError(f"{variable['name']} has no value: {query}")
        every = variable.get("multi") or variable.get("includeAll")
        values[variable["name"]] = f"({'|'.join(found)})" if every else found[0]
    return values


def filled(text: str, values: Mapping[str, str]) -> str:
    """A query with its variables; one that is unknown stays, and Prometheus refuses it."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], match[0]), text)


def legend(form: str, labels: Mapping[str, str]) -> str:
    """A series' name by the target's legendFormat."""
    return re.sub(r"\{\{ *(\w+) *\}\}", lambda match: labels.get(match[1], ""), form).strip()


def gapped(line: Line, span: Span) -> tuple[list[float], list[float]]:
    """Minutes and values, parted by a NaN where there are none for longer than a step."""
    times: list[float] = []
    values: list[float] = []
    last = None
    for at, value in line.series.values:
        if last is not None and at - last > 1.5 * span.step_s:
            times.append((last + span.step_s - span.begin) / 60)
            values.append(nan)
        times.append((at - span.begin) / 60)
        values.append(value)
        last = at
    return times, values


def _panel(
    panel: Mapping[str, Any], values: Mapping[str, str], prometheus: Prometheus, span: Span
) -> Shown:
    if panel["type"] != "timeseries":
        raise RuntimeError(f"{panel['title']} is a {panel['type']}, which is not drawn here yet")
    lines: list[Line] = []
    silent: list[str] = []
    for target in panel["targets"]:
        found = prometheus.range(filled(target["expr"], values), span)
        named = [Line(legend(target["legendFormat"], it.labels), it) for it in found if it.values]
        lines += named
        if not named:
            silent.append(target["expr"])
    settings = panel["fieldConfig"]
    unit = settings["defaults"].get("unit", "short")
    right = dict(map(_right, settings["overrides"]))
    return Shown(panel["title"], unit, Place(**panel["gridPos"]), lines, silent, right)


def _right(override: Mapping[str, Any]) -> tuple[str, str]:
    """The line of an override, and its unit. Raises RuntimeError for one of another kind."""
    properties = {it["id"]: it["value"] for it in override["properties"]}
    known = set(properties) == {"unit", "custom.axisPlacement"}
    if override["matcher"]["id"] != "byName" or not known:
        raise RuntimeError(f"this override is not drawn here yet: {override}")
    return override["matcher"]["options"], properties["unit"]
