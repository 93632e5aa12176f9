"""What the operator would make of the chart's monitors and rules: Prometheus' own files.

The labels of a target are those that the Prometheus operator gives it: of a ServiceMonitor
namespace, service, pod, container, endpoint, and as job the service's name; of a PodMonitor
namespace, pod, container, endpoint, its podTargetLabels, and as job NAMESPACE/NAME.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.charting import NAMESPACE, Manifest, objects

VALUES: Mapping[str, Any] = {
    "monitoring": {
        "monitors": {"enabled": True},
        "rules": {"enabled": True, "waitingRequests": 2, "firstTokenSeconds": 2},
    }
}


@dataclass(frozen=True, slots=True)
class Target:
    """A pod of the fleet, and where its metrics are. component: gateway or worker."""

    component: str
    pod: str
    address: str


def target_config(manifests: Sequence[Manifest], targets: Sequence[Target]) -> list[dict[str, Any]]:
    """Prometheus' static_configs for the pods, one to each, with the labels of its monitor."""
    found = []
    for target in targets:
        monitor = _monitor(manifests, target.component)
        found.append({"targets": [target.address], "labels": _labels(manifests, monitor, target)})
    return found


def write(folder: Path, targets: Sequence[Target], interval_s: int) -> Path:
    """Prometheus' configuration and the chart's rules lie in the folder; the former's path."""
    manifests = objects(VALUES)
    [rules] = [it for it in manifests if it["kind"] == "PrometheusRule"]
    (folder / "rules.json").write_text(json.dumps(rules["spec"]))
    every = f"{interval_s}s"
    config = {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": [str(folder / "rules.json")],
        "scrape_configs": [
            {"job_name": f"pod-{number}", "static_configs": [one]}
            for number, one in enumerate(target_config(manifests, targets))
        ],
    }
    path = folder / "prometheus.json"
    path.write_text(json.dumps(config))
    return path


def _monitor(manifests: Sequence[Manifest], component: str) -> Manifest:
    [found] = [
        it
        for it in manifests
        if it["kind"] in ("ServiceMonitor", "PodMonitor")
        and it["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] == component
    ]
    return found


def _labels(manifests: Sequence[Manifest], monitor: Manifest, target: Target) -> dict[str, str]:
    spec = monitor["spec"]
    plain = {"namespace": NAMESPACE, "pod": target.pod, "container": target.component}
    if monitor["kind"] == "ServiceMonitor":
        [endpoint] = spec["endpoints"]
        [service] = [
            it["metadata"]["name"]
            for it in manifests
            if it["kind"] == "Service"
            and _selects(spec["selector"]["matchLabels"], it["metadata"]["labels"])
        ]
        return {**plain, "job": service, "service": service, "endpoint": endpoint["port"]}
    [endpoint] = spec["podMetricsEndpoints"]
    pod = _pod_labels(manifests, target.pod)
    further = {name: pod[name] for name in spec.get("podTargetLabels", ()) if name in pod}
    job = f"{NAMESPACE}/{monitor['metadata']['name']}"
    return {**plain, "job": job, "endpoint": endpoint["port"], **further}


def _pod_labels(manifests: Sequence[Manifest], pod: str) -> dict[str, str]:
    """The labels of a StatefulSet's pod."""
    [labels] = [
        it["spec"]["template"]["metadata"]["labels"]
        for it in manifests
        if it["kind"] == "StatefulSet" and it["metadata"]["name"] == pod.rpartition("-")[0]
    ]
    return dict(labels)


def _selects(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return wanted.items() <= labels.items()
