"""Whether what the objects name is there: files, volumes, accounts, ports, targets, pods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from tests.deploy.charting import Manifest
from tests.deploy.policies import Pod, containers, pods, selects

FILES = r"/(?:etc/pando|models)[\w./-]*"
OF_PODS = ("Service", "PodDisruptionBudget", "PodMonitor")


def complaints(manifests: Sequence[Manifest]) -> list[str]:
    """Every name that means nothing."""
    found = [text for name, pod in pods(manifests) for text in _of_pod(manifests, name, pod)]
    known = [pod for _, pod in pods(manifests)]
    for manifest in manifests:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        found += [f"{name}: {text}" for text in _of_object(manifest, manifests, known)]
    names = [(it["kind"], it["metadata"]["name"]) for it in manifests]
    found += [f"{name}: stands there twice" for name in {n for n in names if names.count(n) > 1}]
    return found


def _of_object(
    manifest: Manifest, manifests: Sequence[Manifest], known: Sequence[Pod]
) -> Iterator[str]:
    if manifest["kind"] in OF_PODS:
        yield from _of_selector(manifest, known)
    if manifest["kind"] == "ServiceMonitor":
        chosen = [
            it
            for it in manifests
            if it["kind"] == "Service" and selects(manifest["spec"]["selector"], it)
        ]
        ports = [port["name"] for it in chosen for port in it["spec"]["ports"]]
        if ports != [it["port"] for it in manifest["spec"]["endpoints"]]:
            yield f"it selects services with the ports {ports}"
    target = manifest.get("spec", {}).get("scaleTargetRef")
    if target is not None:
        there = [
            it
            for it in manifests
            if (it["apiVersion"], it["kind"]) == (target["apiVersion"], target["kind"])
            and it["metadata"]["name"] == target["name"]
        ]
        if not there:
            yield f"it scales {target['name']}, which is not there"
        if any("replicas" in it["spec"] for it in there):
            yield f"it and the values both say how many {target['name']} has"


def _of_selector(manifest: Manifest, known: Sequence[Pod]) -> Iterator[str]:
    """A selector of pods has pods, all of one component, with the ports that are named."""
    spec = manifest["spec"]
    selector = spec["selector"] if "matchLabels" in spec["selector"] else {}
    selector = selector or {"matchLabels": spec["selector"]}
    chosen = [pod for pod in known if selects(selector, pod)]
    parts = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in chosen}
    if len(parts) != 1:
        yield f"it selects pods of {sorted(parts) or 'no component'}"
    ends = [it["targetPort"] for it in spec.get("ports", [])]
    ends += [it["port"] for it in spec.get("podMetricsEndpoints", [])]
    for pod in chosen:
        ports = {port["name"] for it in pod["spec"]["containers"] for port in it.get("ports", [])}
        yield from (f"its pods have no port {end}" for end in ends if end not in ports)


def _of_pod(manifests: Sequence[Manifest], name: str, pod: Pod) -> Iterator[str]:
    accounts = {it["metadata"]["name"] for it in manifests if it["kind"] == "ServiceAccount"}
    if pod["spec"].get("serviceAccountName") not in accounts:
        yield f"{name}: its account is not there"
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    claimed = _claimed(manifests, name)
    for container in containers(pod):
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes and mount["name"] not in claimed:
                yield f"{name}: {mount['name']} is no volume"
            if "subPath" in mount:
                yield f"{name}: {mount['name']} would not follow changes below a subPath"
        yield from (f"{name}: {text}" for text in _of_environment(container))
        for text in _texts(container, volumes, manifests):
            for path in re.findall(FILES, text):
                fault = _of_path(path, container, volumes, manifests)
                if fault:
                    yield f"{name}: {path} {fault}"


def _of_environment(container: dict[str, Any]) -> Iterator[str]:
    """Folders that the environment names are written to."""
    mounts = container.get("volumeMounts", [])
    writable = [it["mountPath"] for it in mounts if not it.get("readOnly")]
    for variable in container.get("env", []):
        value = variable.get("value", "")
        is_folder = value.startswith("/")
        if is_folder and not any(PurePosixPath(value).is_relative_to(it) for it in writable):
            yield f"{variable['name']} is {value}, where nothing can be written"


def _claimed(manifests: Sequence[Manifest], name: str) -> set[str]:
    for manifest in manifests:
        if f"{manifest['kind']} {manifest['metadata']['name']}" == name:
            claims = manifest["spec"].get("volumeClaimTemplates", [])
            return {claim["metadata"]["name"] for claim in claims}
    return set()


def _texts(
    container: dict[str, Any], volumes: dict[str, Any], manifests: Sequence[Manifest]
) -> Iterator[str]:
    """What a container is told of paths: arguments and its configuration."""
    yield from container.get("args", [])
    for mount in container.get("volumeMounts", []):
        if mount["name"] == "config":
            yield from _keys(volumes["config"], manifests).values()


def _keys(volume: dict[str, Any], manifests: Sequence[Manifest]) -> dict[str, str]:
    """The files of a volume that an object of ours fills; empty for others."""
    name = volume.get("configMap", {}).get("name") or volume.get("secret", {}).get("secretName")
    for manifest in manifests:
        if manifest["kind"] in ("ConfigMap", "Secret") and manifest["metadata"]["name"] == name:
            return manifest.get("data") or manifest.get("stringData") or {}
    return {}


def _of_path(
    path: str,
    container: dict[str, Any],
    volumes: dict[str, Any],
    manifests: Sequence[Manifest],
) -> str | None:
    """What is wrong with a path: nothing is mounted there, or it may not be as it is."""
    place = PurePosixPath(path)
    for mount in container.get("volumeMounts", []):
        if not place.is_relative_to(mount["mountPath"]):
            continue
        is_written = container["name"] == "fetch"
        if mount.get("readOnly", False) == is_written:
            return "must be writable" if is_written else "need not be writable"
        keys = _keys(volumes.get(mount["name"], {}), manifests)
        if keys and place.name not in keys:
            return f"is not among {sorted(keys)}"
        return None
    return "is not mounted"
