"""Who may connect to whom, by the rendered NetworkPolicies: what a network plug-in would decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.deploy.charting import Manifest

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """A pod by its labels and its namespace's, which are all that policies here ask for."""

    pod: Labels
    namespace: Labels
    is_ours: bool


def connects(manifests: Sequence[Manifest], source: Place, target: Place, port: int) -> bool:
    """Whether TCP from source gets through to target's port, both sides' policies asked."""
    policies = [it["spec"] for it in manifests if it["kind"] == "NetworkPolicy"]
    return _lets(policies, source, "Egress", target, port) and _lets(
        policies, target, "Ingress", source, port
    )


def _lets(
    policies: Sequence[dict[str, Any]], at: Place, direction: str, other: Place, port: int
) -> bool:
    """Whether a pod's own policies of one direction let the other in, or out to it."""
    if not at.is_ours:
        return True
    own = [
        it
        for it in policies
        if direction in it["policyTypes"] and _matches(it["podSelector"], at.pod)
    ]
    rules = [rule for it in own for rule in it.get(direction.lower(), [])]
    side = "to" if direction == "Egress" else "from"
    return not own or any(
        _has_port(rule, port) and _has_peer(rule.get(side), other) for rule in rules
    )


def _has_port(rule: Mapping[str, Any], port: int) -> bool:
    ports = rule.get("ports")
    return ports is None or any(
        it["port"] == port and it.get("protocol", "TCP") == "TCP" for it in ports
    )


def _has_peer(peers: Sequence[Mapping[str, Any]] | None, other: Place) -> bool:
    if not peers:
        return True
    for peer in peers:
        if "ipBlock" in peer:
            continue
        # Without a namespace's selector a peer is in the policy's own namespace.
        spaces = peer.get("namespaceSelector")
        inside = other.is_ours if spaces is None else _matches(spaces, other.namespace)
        if inside and _matches(peer.get("podSelector", {}), other.pod):
            return True
    return False


def _matches(selector: Mapping[str, Any], labels: Labels) -> bool:
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items())
