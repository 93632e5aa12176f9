from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from gateway.telemetry.collectors import QueueCollector, WorkerCollector
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Telemetry as GatewayTelemetry
from gateway.telemetry.tenancy import TenancyTelemetry
from tests.deploy.charting import CHART, Values, objects
from tests.deploy.test_chart import EVERYTHING
from worker import telemetry as worker_telemetry
from worker.cache.record import EvictionRecord
from worker.grammar.compiler import Compilations
from worker.live import Tallies

ROOT = Path(__file__).parents[2]
BOARDS = sorted((CHART / "dashboards").glob("*.json"))
# What Prometheus itself adds to each series, and what the PodMonitor does.
TARGET_LABELS = {"namespace", "service", "pod", "pool", "le"}
PROMETHEUS_OWN = {"up"}
ENDINGS = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}


class Anything(Mapping[str, int]):
    """A worker's gauges, whatever they are called."""

    def __getitem__(self, name: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def families() -> Iterator[tuple[Metric, set[str]]]:
    """Every metric that gateways and workers show, with the labels that it has."""
    registry = CollectorRegistry()
    GatewayTelemetry(registry)
    TenancyTelemetry(registry, EventLog(logging.getLogger("gateway")))
    worker_telemetry.Telemetry(registry)
    for collector in set(registry._collector_to_names):
        names = set(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            yield family, names
    for live in (
        QueueCollector(lambda: {("acme", "small"): 1}),
        WorkerCollector(lambda: [("worker-0", Anything())]),
        worker_telemetry.RequestCounts(Tallies()),
        worker_telemetry.GrammarCounts(Compilations()),
        worker_telemetry.PageHistory(EvictionRecord()),
    ):
        for family in live.collect():
            yield family, {name for sample in family.samples for name in sample.labels}


def series() -> dict[str, set[str]]:
    """The labels of every series by its name."""
    return {
        f"{family.name}{ending}": labels | TARGET_LABELS
        for family, labels in families()
        for ending in ENDINGS[family.type]
    }


def expressions(board: dict[str, Any]) -> Iterator[str]:
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


def alerts(values: Values = EVERYTHING) -> list[dict[str, Any]]:
    [rules] = [it for it in objects(values) if it["kind"] == "PrometheusRule"]
    found: list[dict[str, Any]] = rules["spec"]["groups"][0]["rules"]
    return found


def unknown(expression: str, known: dict[str, set[str]]) -> list[str]:
    """Series that nobody shows, and labels that theirs do not have."""
    found = []
    for name, matchers in re.findall(r"\b(pando_\w+|up)(?:\{([^}]*)\})?", expression):
        if name in PROMETHEUS_OWN:
            continue
        if name not in known:
            found.append(name)
            continue
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        found += [f"{name}.{label}" for label in sorted(labels - known[name])]
    used = [known[name] for name in re.findall(r"\bpando_\w+", expression) if name in known]
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        for label in re.split(r",\s*", grouped):
            if not all(label in labels for labels in used):
                found.append(f"by ({label})")
    return found


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_for_series_that_exist(path: Path) -> None:
    board = json.loads(path.read_text("utf-8"))
    known = series()
    found = [text for expression in expressions(board) for text in unknown(expression, known)]
    assert found == []
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_dashboards_have_names_of_their_own_and_are_shipped() -> None:
    boards = [json.loads(path.read_text("utf-8")) for path in BOARDS]
    assert len({board["uid"] for board in boards}) == len(boards) == 3
    [shipped] = [it for it in objects(EVERYTHING) if it["metadata"]["name"].endswith("dashboards")]
    assert [json.loads(text) for text in shipped["data"].values()] == boards


def test_alerts_ask_for_series_that_exist() -> None:
    known = series()
    found = [text for alert in alerts() for text in unknown(alert["expr"], known)]
    assert found == []


def test_what_autoscaling_asks_for_exists() -> None:
    known = series()
    scaled = [it for it in objects(EVERYTHING) if it["kind"] == "ScaledObject"]
    queries = [it["metadata"]["query"] for one in scaled for it in one["spec"]["triggers"]]
    assert len(queries) == 2
    assert [text for query in queries for text in unknown(query, known)] == []


def test_every_alert_has_a_page_to_read_and_every_such_page_an_alert() -> None:
    headings = re.findall(r"(?m)^### (Pando\w+)$", (ROOT / "docs/operations.md").read_text("utf-8"))
    links = {alert["alert"]: alert["annotations"]["runbook_url"] for alert in alerts()}
    assert sorted(headings) == sorted(links)
    place = "https://docs.example.com/pando/operations.md"
    assert all(url == f"{place}#{name.lower()}" for name, url in links.items())


def test_without_a_place_where_pages_are_read_alerts_have_no_link_and_say_where_to_look() -> None:
    found = alerts({"monitoring": {"rules": {"enabled": True}}})
    assert len(found) == len(alerts())
    for alert in found:
        assert set(alert["annotations"]) == {"summary", "description"}
        assert alert["alert"] in alert["annotations"]["description"]


@pytest.mark.parametrize(
    ("pool", "model"),
    [
        ({}, "smollm2-135m-instruct"),
        ({"model": {"source": "claim", "claim": "m", "path": "llama/70b/"}}, "70b"),
        ({"model": {"source": "claim", "claim": "m", "path": "small.gguf"}}, "small"),
        ({"config": {"served_model_name": "chat"}}, "chat"),
    ],
)
def test_a_pool_is_scaled_by_what_waits_for_its_own_model(pool: Values, model: str) -> None:
    scaled = {"name": "one", "autoscaling": {"enabled": True}, **pool}
    manifests = objects({"pools": [scaled, {"name": "two"}]})
    [one] = [it for it in manifests if it["kind"] == "ScaledObject"]
    query = one["spec"]["triggers"][0]["metadata"]["query"]
    assert f'model="{model}"' in query
    promql_parser.parse(query)
    assert unknown(query, series()) == []


def test_alerts_fall_on_this_release_only() -> None:
    for alert in alerts():
        selectors = re.findall(r"\{([^}]*)\}", alert["expr"])
        assert selectors, alert["alert"]
        assert all('namespace="serving"' in it for it in selectors), alert["alert"]


def test_what_is_asked_is_promql() -> None:
    texts = [alert["expr"] for alert in alerts()]
    for path in BOARDS:
        board = json.loads(path.read_text("utf-8"))
        texts += [it["expr"] for panel in board["panels"] for it in panel["targets"]]
    scaled = [it for it in objects(EVERYTHING) if it["kind"] == "ScaledObject"]
    texts += [it["metadata"]["query"] for one in scaled for it in one["spec"]["triggers"]]
    for text in texts:
        promql_parser.parse(text.replace("$__rate_interval", "5m"))
    with pytest.raises(ValueError, match="unclosed"):
        promql_parser.parse("sum(rate(pando_worker_turns_total[5m])")


def test_a_series_or_label_that_is_none_is_found() -> None:
    known = series()
    assert unknown("sum(pando_gateway_request_total)", known) == ["pando_gateway_request_total"]
    wrong = 'sum(pando_gateway_requests_total{worker="a"})'
    assert unknown(wrong, known) == ["pando_gateway_requests_total.worker"]
    assert unknown("sum by (worker) (pando_gateway_requests_total)", known) == ["by (worker)"]
