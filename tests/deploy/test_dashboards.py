"""The parts of `python -m tests.deploy.dashboards`; the whole of it is slow."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.charting import CHART
from tests.deploy.dashboards import monitored
from tests.deploy.dashboards.board import Line, filled, gapped, legend, shown, variables
from tests.deploy.dashboards.monitored import Target
from tests.deploy.dashboards.server import Prometheus, Series, Span, check_rules

ROOT = Path(__file__).resolve().parents[2]
BOARDS = sorted((CHART / "dashboards").glob("*.json"))
SPAN = Span(begin=0.0, end=60.0, step_s=2, rate_s=20)
TARGETS = [
    Target("gateway", "demo-pando-gateway-0", "127.0.0.1:1"),
    Target("worker", "demo-pando-worker-small-0", "127.0.0.1:2"),
]


class Answers(Prometheus):
    """Knows two pools and two services, and one line for every query but those named."""

    def __init__(self, silent: str = "") -> None:
        self.asked: list[str] = []
        self._silent = silent

    def label_values(self, label: str, selector: str, span: Span) -> list[str]:
        return [f"{label}-1", f"{label}-2"]

    def range(self, query: str, span: Span) -> list[Series]:
        self.asked.append(query)
        if self._silent and self._silent in query:
            return []
        return [Series({"pod": "p", "tenant": "t"}, [(0.0, 1.0), (2.0, 1.0)])]


def test_targets_have_the_labels_that_their_monitors_give(tmp_path: Path) -> None:
    path = monitored.write(tmp_path, TARGETS, 2)
    jobs = json.loads(path.read_text())["scrape_configs"]
    gateway, worker = (job["static_configs"][0]["labels"] for job in jobs)
    assert gateway == {
        "namespace": "serving",
        "service": "demo-pando-gateway",
        "pod": "demo-pando-gateway-0",
        "container": "gateway",
        "endpoint": "http",
        "job": "demo-pando-gateway",
    }
    assert worker == {
        "namespace": "serving",
        "pod": "demo-pando-worker-small-0",
        "container": "worker",
        "endpoint": "metrics",
        "job": "serving/demo-pando-worker",
        "pool": "small",
    }


def test_prometheus_takes_the_charts_rules(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing: .ci/system-packages prometheus installs it")
    monitored.write(tmp_path, TARGETS, 2)
    assert "16 rules found" in check_rules(tmp_path / "rules.json")
    broken = (tmp_path / "rules.json").read_text().replace("sum by (model)", "sum by model")
    (tmp_path / "broken.json").write_text(broken)
    with pytest.raises(RuntimeError, match="PandoQueueLong"):
        check_rules(tmp_path / "broken.json")


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_query_is_asked_with_its_variables_filled_in(path: Path) -> None:
    prometheus = Answers()
    board = shown(path, prometheus, SPAN)
    assert len(prometheus.asked) >= len(board.panels) >= 10
    for query in prometheus.asked:
        assert "$" not in query
        assert 'namespace="namespace-1"' in query
        assert '=~"(service-1|service-2)"' in query or '=~"(pool-1|pool-2)"' in query
    assert all(panel.lines and not panel.silent for panel in board.panels)


def test_a_target_that_shows_nothing_is_told() -> None:
    [path] = [it for it in BOARDS if it.stem == "requests"]
    panels = shown(path, Answers(silent="retries_total"), SPAN).panels
    [silent] = [panel for panel in panels if panel.silent]
    assert silent.title == "Retries and continuations"
    assert len(silent.lines) == 1


def test_a_variable_without_a_value_is_an_error() -> None:
    class Nothing(Answers):
        def label_values(self, label: str, selector: str, span: Span) -> list[str]:
            return []

    board: dict[str, Any] = json.loads(BOARDS[0].read_text())
    with pytest.raises(RuntimeError, match="namespace has no value"):
        variables(board, Nothing(), SPAN)


def test_words_are_filled_in_as_grafana_does() -> None:
    assert filled('rate(a{b="$b"}[${c}]) $d', {"b": "x", "c": "20s"}) == 'rate(a{b="x"}[20s]) $d'
    assert legend("{{pod}} runs {{ none }}", {"pod": "p"}) == "p runs"


def test_lines_part_where_there_is_nothing() -> None:
    line = Line("a", Series({}, [(0.0, 1.0), (2.0, 2.0), (10.0, 3.0)]))
    times, values = gapped(line, SPAN)
    assert values[:2] == [1.0, 2.0]
    assert math.isnan(values[2])
    assert values[3:] == [3.0]
    assert times == pytest.approx([0.0, 2 / 60, 4 / 60, 10 / 60])


@pytest.mark.slow
def test_every_panel_shows_something_of_a_fleet_that_runs(tmp_path: Path) -> None:
    command = ["-m", "tests.deploy.dashboards", "--seconds", "90", "--pictures", str(tmp_path)]
    told = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if "skipped" in told.stdout:
        pytest.skip(told.stdout.strip())
    assert told.returncode == 0, told.stdout + told.stderr[-4000:]
    assert "empty=0" in told.stdout
    for path in tmp_path.glob("dashboard-*.svg"):
        assert path.stat().st_size < 300_000
