"""What every pod of ours must have, checked on the rendered objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.deploy.charting import Manifest

SAFE_VOLUMES = {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
Pod = dict[str, Any]


def complaints(manifests: Sequence[Manifest]) -> list[str]:
    """Every rule that an object breaks."""
    found = [f"{name}: {text}" for name, pod in pods(manifests) for text in _of_pod(pod)]
    found += _of_networks(manifests)
    return found


def pods(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Pod]]:
    """Every pod and pod template, by the name of what has it."""
    for manifest in manifests:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        if manifest["kind"] == "Pod":
            yield name, manifest
        elif "template" in manifest.get("spec", {}):
            yield name, manifest["spec"]["template"]


def containers(pod: Pod) -> list[dict[str, Any]]:
    """Those that run, and those before them."""
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


def _of_pod(pod: Pod) -> Iterator[str]:
    spec = pod["spec"]
    security = spec.get("securityContext", {})
    if spec.get("automountServiceAccountToken") is not False:
        yield "it is given the account's token"
    if spec.get("serviceAccountName", "default") == "default":
        yield "it runs as the namespace's default account"
    if not security.get("runAsNonRoot") or security.get("runAsUser", 0) == 0:
        yield "it may run as root"
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "it has no seccomp profile"
    if any(spec.get(field) for field in ("hostNetwork", "hostPID", "hostIPC")):
        yield "it shares the node's namespaces"
    yield from _of_volumes(spec.get("volumes", []))
    for container in containers(pod):
        yield from (f"{container['name']}: {text}" for text in _of_container(container))
    if spec.get("restartPolicy") != "Never":
        yield from _of_probes(spec["containers"])


def _of_volumes(volumes: Sequence[dict[str, Any]]) -> Iterator[str]:
    for volume in volumes:
        if not (set(volume) - {"name"}) <= SAFE_VOLUMES:
            yield f"volume {volume['name']} is none that restricted pods may have"
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield f"volume {volume['name']} has no limit"


def _of_probes(running: Sequence[dict[str, Any]]) -> Iterator[str]:
    for container in running:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe not in container:
                yield f"{container['name']}: no {probe}"


def _of_container(container: dict[str, Any]) -> Iterator[str]:
    security = container.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False:
        yield "it may gain privileges"
    if security.get("readOnlyRootFilesystem") is not True:
        yield "its root is writable"
    if security.get("capabilities") != {"drop": ["ALL"]}:
        yield "it keeps capabilities"
    resources = container.get("resources", {})
    if not {"cpu", "memory"} <= set(resources.get("requests", {})):
        yield "it asks for no CPU or memory"
    image = container["image"]
    tag = image.rpartition("/")[2].partition(":")[2]
    if "@sha256:" not in image and tag in ("", "latest"):
        yield f"image {image} is not pinned"


def selects(selector: dict[str, Any], pod: Pod) -> bool:
    """Whether a selector's labels are the pod's."""
    wanted = selector.get("matchLabels", {}).items()
    return all(pod["metadata"]["labels"].get(name) == value for name, value in wanted)


def _of_networks(manifests: Sequence[Manifest]) -> Iterator[str]:
    policies = [it for it in manifests if it["kind"] == "NetworkPolicy"]
    closed = [it["spec"] for it in policies if not {"ingress", "egress"} & set(it["spec"])]
    for name, pod in pods(manifests):
        both = [it for it in closed if it["policyTypes"] == ["Ingress", "Egress"]]
        if not any(selects(it["podSelector"], pod) for it in both):
            yield f"{name}: no NetworkPolicy denies it everything"
