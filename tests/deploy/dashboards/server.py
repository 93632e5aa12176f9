"""A Prometheus of our own on a port of 127.0.0.1, asked by its HTTP API as Grafana asks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from loadtest.starting import wait_until
from pando.children import Children
from pando.ports import free_ports


class PrometheusMissing(Exception):
    """The program is not installed; the text says how to install it."""

    def __init__(self) -> None:
        super().__init__("prometheus is missing: .ci/system-packages prometheus installs it")


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a panel. values: by time, those that are no number left out."""

    labels: dict[str, str]
    values: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when a dashboard shows, by which step; rate_s: Grafana's $__rate_interval."""

    begin: float
    end: float
    step_s: int
    rate_s: int


class Prometheus:
    """Answers queries. Raises httpx.HTTPStatusError where one is refused, with its text."""

    def __init__(self, http: httpx.Client):
        self._http = http

    def range(self, query: str, span: Span) -> list[Series]:
        """What a panel's target shows."""
        asked = {"query": query, "start": span.begin, "end": span.end, "step": span.step_s}
        told = self._get("/api/v1/query_range", **asked)
        return [
            Series(one["metric"], [(at, float(v)) for at, v in one["values"] if v != "NaN"])
            for one in told["result"]
        ]

    def now(self, query: str) -> float | None:
        """A query's one value at this moment; None where it has none."""
        result = self._get("/api/v1/query", query=query)["result"]
        return float(result[0]["value"][1]) if result else None

    def label_values(self, label: str, selector: str, span: Span) -> list[str]:
        """The values of a label over the series of a selector: Grafana's label_values()."""
        asked = {"match[]": selector, "start": span.begin, "end": span.end}
        return [str(one) for one in self._get(f"/api/v1/label/{label}/values", **asked)]

    def rules(self) -> list[dict[str, Any]]:
        """Every alert that is evaluated, with its health."""
        groups = self._get("/api/v1/rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def down(self) -> list[str]:
        """Targets that were not read, or never."""
        targets = self._get("/api/v1/targets")["activeTargets"]
        return [f"{it['scrapeUrl']}: {it['lastError']}" for it in targets if it["health"] != "up"]

    def _get(self, path: str, **asked: Any) -> Any:
        response = self._http.get(path, params=asked)
        if response.status_code >= 400:
            raise RuntimeError(f"{asked}: {response.text}")
        return response.json()["data"]


def check_rules(rules: Path) -> str:
    """What promtool says of a file of rules, where it finds nothing wrong. Raises RuntimeError."""
    told = subprocess.run(
        [_program("promtool"), "check", "rules", rules], capture_output=True, text=True, check=False
    )
    if told.returncode:
        raise RuntimeError(told.stdout + told.stderr)
    return told.stdout.strip().splitlines()[-1].strip()


@contextmanager
def serving(children: Children, config: Path) -> Iterator[Prometheus]:
    """It runs, reads its targets and evaluates its rules. Raises PrometheusMissing."""
    [port] = free_ports(1)
    command = [
        _program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={config.parent / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    base = f"http://127.0.0.1:{port}"
    children.start("prometheus", command)
    with httpx.Client(base_url=base, trust_env=False, timeout=30) as http:
        wait_until(lambda: _is_ready(http), children, "Prometheus is not ready", 60)
        yield Prometheus(http)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise PrometheusMissing
    return found


def _is_ready(http: httpx.Client) -> bool:
    try:
        return http.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False
