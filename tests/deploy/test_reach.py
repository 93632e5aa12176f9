from __future__ import annotations

from typing import Any

import pytest

from tests.deploy import policies
from tests.deploy.charting import NAMESPACE, Manifest, objects
from tests.deploy.reach import Place, connects
from tests.deploy.test_chart import EVERYTHING

HTTP, GRPC, METRICS, REDIS = 8000, 7001, 7002, 6379


def places(manifests: list[Manifest]) -> dict[str, Place]:
    """Our pods by component, and strangers by namespace."""
    space = {"kubernetes.io/metadata.name": NAMESPACE}
    found = {}
    for _, pod in policies.pods(manifests):
        labels = pod["metadata"]["labels"]
        found[labels["app.kubernetes.io/component"]] = Place(labels, space, is_ours=True)
    for name in ("ingress-nginx", "gateways", "monitoring", "elsewhere"):
        found[name] = Place({}, {"kubernetes.io/metadata.name": name}, is_ours=False)
    # Somebody else's pod in our namespace: no policy of ours is about it, but it may be a peer.
    found["neighbour"] = Place({"app": "other"}, space, is_ours=False)
    return found


def open_paths(values: Any) -> set[tuple[str, str, int]]:
    manifests = objects(values)
    known = places(manifests)
    return {
        (a, b, port)
        for a, source in known.items()
        for b, target in known.items()
        for port in (HTTP, GRPC, METRICS, REDIS, 443)
        if target.is_ours and connects(manifests, source, target, port)
    }


def test_with_everything_named_there_are_these_paths_and_no_others() -> None:
    assert open_paths(EVERYTHING) == {
        ("ingress-nginx", "gateway", HTTP),
        ("gateways", "gateway", HTTP),
        ("monitoring", "gateway", HTTP),
        ("test", "gateway", HTTP),
        ("gateway", "worker", GRPC),
        ("monitoring", "worker", METRICS),
        ("gateway", "redis", REDIS),
    }


def test_by_default_everybody_may_ask_and_only_gateways_reach_workers() -> None:
    paths = open_paths({})
    assert {path for path in paths if path[1] == "worker"} == {("gateway", "worker", GRPC)}
    strangers = {"ingress-nginx", "gateways", "monitoring", "elsewhere", "neighbour"}
    asking = {source for source, target, port in paths if (target, port) == ("gateway", HTTP)}
    assert asking == strangers | {"test"}


@pytest.mark.parametrize("component", ["worker", "redis"])
def test_what_holds_models_and_tenants_reaches_nobody(component: str) -> None:
    manifests = objects(EVERYTHING)
    known = places(manifests)
    for target in known.values():
        for port in (53, 443, HTTP, GRPC, REDIS):
            assert not connects(manifests, known[component], target, port)


def test_gateways_reach_names_and_nothing_else_outside() -> None:
    manifests = objects(EVERYTHING)
    known = places(manifests)
    reached = {
        port
        for port in (53, 80, 443, REDIS, GRPC)
        if connects(manifests, known["gateway"], known["elsewhere"], port)
    }
    assert reached == {53}
