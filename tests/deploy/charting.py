"""What Helm makes of the chart: its objects, rendered in process, for a profile or any values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
import msgspec

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "pando"
RELEASE, NAMESPACE = "demo", "serving"
Values = Mapping[str, Any]
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Profile:
    """Values under a name, to be rendered over the chart's own."""

    name: str
    values: Values


def read(path: Path) -> dict[str, Any]:
    """A file of values."""
    return msgspec.yaml.decode(path.read_bytes(), type=dict[str, Any])


def shipped() -> list[Profile]:
    """The profiles that the chart brings, its own values first."""
    files = sorted(CHART.glob("values-*.yaml"))
    return [Profile("values", {}), *(Profile(path.stem, read(path)) for path in files)]


def profiles() -> list[Profile]:
    """What is shipped, and combinations of settings that no shipped profile has."""
    return [*shipped(), *(Profile(name, values) for name, values in FURTHER.items())]


def render(values: Values, folder: Path = CHART) -> dict[str, str]:
    """Every template's text. Raises HelmError where the schema or the chart refuses the values."""
    with helm_python.Chart.load(folder) as chart:
        chart.validate_schema(dict(values))
        return chart.render(dict(values), name=RELEASE, namespace=NAMESPACE)


def objects(values: Values, folder: Path = CHART) -> list[Manifest]:
    """Everything that would be created."""
    texts = [text for path, text in render(values, folder).items() if path.endswith(".yaml")]
    parts = [part for text in texts for part in re.split(r"(?m)^---$", text)]
    return [manifest for part in parts if (manifest := msgspec.yaml.decode(part))]


def lint(values: Values) -> list[str]:
    """What Helm's linter says beyond information."""
    report = helm_python.lint(CHART, dict(values), strict=True, namespace=NAMESPACE)
    said = [f"{it['path']}: {it['error']}" for it in report["messages"] if it["severity"] > 1]
    return said + [error for error in report["errors"] or [] if error not in " ".join(said)]


FURTHER: dict[str, Values] = {
    "external-redis": {
        "redis": {"mode": "external", "external": {"secret": "redis-url"}},
        "networkPolicy": {"gatewayEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.5/32"}}]}]},
    },
    "own-redis-without-storage": {
        "redis": {"mode": "own", "own": {"storage": {"enabled": False}}},
        "tenants": {"enabled": True, "store": "ConfigMap"},
    },
    "existing-secrets": {
        "tenants": {"enabled": True, "existing": "who"},
        "tls": {
            "enabled": True,
            "certManager": {"enabled": False},
            "gatewaySecret": "gateway-tls",
            "workerSecret": "worker-tls",
        },
        "imagePullSecrets": [{"name": "registry"}],
    },
    "models-from-everywhere": {
        "networkPolicy": {"workerEgress": [{"ports": [{"port": 443, "protocol": "TCP"}]}]},
        "pools": [
            {"name": "node", "model": {"source": "hostPath", "hostPath": "/models", "path": "a"}},
            {
                "name": "fetched",
                "model": {
                    "source": "fetch",
                    "path": "b",
                    "fetch": {"image": "fetcher:1.0", "args": ["b", "/models/b"]},
                },
            },
            {"name": "claimed", "model": {"source": "claim", "claim": "all", "path": "c.gguf"}},
        ],
    },
    "all-off": {
        "gateway": {
            "preStopSeconds": 0,
            "spread": {"enabled": False},
            "disruptionBudget": {"enabled": False},
        },
        "worker": {"spread": {"enabled": False}, "disruptionBudget": {"enabled": False}},
        "test": {"enabled": False},
    },
    "by-digest": {
        "fullnameOverride": "grove",
        "gateway": {
            "image": {"digest": "sha256:" + "a" * 64},
            "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "vllm", "key": "key"}}}],
            "config": {
                "foreign": [{"url": "http://vllm-0:8000", "name": "vllm-0", "key_variable": "KEY"}]
            },
        },
        "worker": {
            "config": {"prefix_cache": "off", "dflash": "on", "drain_s": 0},
            "runtimeClassName": "nvidia",
            "priorityClassName": "serving",
        },
    },
}
