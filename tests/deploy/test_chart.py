from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from gateway import config as gateway_config
from gateway.tenancy.file_source import read_tenants
from tests.deploy import policies, references, strict
from tests.deploy.__main__ import judged, refused
from tests.deploy.bad_values import BAD_VALUES
from tests.deploy.charting import (
    CHART,
    NAMESPACE,
    RELEASE,
    Manifest,
    Profile,
    objects,
    profiles,
    read,
    render,
)
from tests.deploy.settings import SCHEMA, definitions, is_ours
from worker import config as worker_config

ALL = {profile.name: profile for profile in profiles()}
EVERYTHING = ALL["values-multi-tenant"].values


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [it for it in manifests if it["kind"] == kind]


def files(manifests: list[Manifest], name: str) -> dict[str, str]:
    """The texts under a key of ConfigMaps and Secrets, by the object's name."""
    found = {}
    for manifest in manifests:
        data = manifest.get("data", {}) | manifest.get("stringData", {})
        if name in data:
            found[manifest["metadata"]["name"]] = data[name]
    return found


@pytest.mark.parametrize("profile", ALL.values(), ids=list(ALL))
def test_a_profile_is_what_the_api_server_knows_and_breaks_no_rule(profile: Profile) -> None:
    assert judged(profile) == []


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_bad_value_is_refused_with_its_path(name: str) -> None:
    assert BAD_VALUES[name][1] in refused(name)


@pytest.mark.parametrize("profile", ALL.values(), ids=list(ALL))
def test_our_loaders_take_the_files_and_give_what_was_set(profile: Profile, tmp_path: Path) -> None:
    manifests = objects(profile.values)
    [text] = files(manifests, "gateway.yaml").values()
    (tmp_path / "gateway.yaml").write_text(text)
    gateway = gateway_config.load(tmp_path / "gateway.yaml", {})
    assert gateway.dns is not None
    [headless] = [
        it for it in of_kind(manifests, "Service") if it["spec"].get("clusterIP") == "None"
    ]
    assert gateway.dns.name == headless["metadata"]["name"]
    assert gateway.link.tls is None or gateway.link.tls.server_name == (
        f"{gateway.dns.name}.{NAMESPACE}.svc"
    )
    assert gateway.dns.port == headless["spec"]["ports"][0]["port"]
    pools = files(manifests, "worker.yaml")
    assert len(pools) == len(profile.values.get("pools", [1]))
    for name, pool in pools.items():
        (tmp_path / f"{name}.yaml").write_text(pool)
        worker = worker_config.load(tmp_path / f"{name}.yaml", {"name": f"{name}-0"})
        assert worker.listen == f"0.0.0.0:{gateway.dns.port}"
        for paper in (worker.tls_cert, worker.tls_client_ca):
            assert (paper is None) == (gateway.link.tls is None)
    for text in files(manifests, "tenants.yaml").values():
        (tmp_path / "tenants.yaml").write_text(text)
        read_tenants(tmp_path / "tenants.yaml")


def test_words_that_yaml_would_make_truth_values_stay_words(tmp_path: Path) -> None:
    [text] = files(objects(ALL["by-digest"].values), "worker.yaml").values()
    assert 'dflash: "on"' in text
    assert 'prefix_cache: "off"' in text
    (tmp_path / "worker.yaml").write_text(text)
    worker = worker_config.load(tmp_path / "worker.yaml", {})
    assert (worker.dflash, worker.prefix_cache, worker.drain_s) == ("on", "off", 0)


def test_large_numbers_are_rendered_in_full() -> None:
    limits = {"body_bytes": 16_777_216, "prompt_ids": 10_000_000}
    manifests = objects({"gateway": {"config": {"limits": limits}}})
    [text] = files(manifests, "gateway.yaml").values()
    assert "body_bytes: 16777216" in text
    assert "prompt_ids: 10000000" in text


def test_a_pool_has_what_all_have_unless_it_says_otherwise() -> None:
    values = {
        "worker": {
            "config": {"deterministic": True, "threads": 4},
            "autoscaling": {"enabled": True},
            "disruptionBudget": {"enabled": True},
        },
        "pools": [
            {"name": "one"},
            {
                "name": "two",
                "replicas": 5,
                "config": {"deterministic": False},
                "autoscaling": {"enabled": False},
                "disruptionBudget": {"enabled": False},
            },
        ],
    }
    manifests = objects(values)
    one, two = files(manifests, "worker.yaml").values()
    assert "deterministic: true\n" in one
    assert "deterministic: false\n" in two
    assert "threads: 4\n" in one
    assert "threads: 4\n" in two
    sets = of_kind(manifests, "StatefulSet")
    assert [it["spec"].get("replicas") for it in sets] == [None, 5]
    names = [it["metadata"]["name"] for it in sets]
    assert [it["metadata"]["name"] for it in of_kind(manifests, "ScaledObject")] == names[:1]
    budgets = [it["metadata"]["name"] for it in of_kind(manifests, "PodDisruptionBudget")]
    assert names[0] in budgets
    assert names[1] not in budgets


@pytest.mark.parametrize("profile", ALL.values(), ids=list(ALL))
def test_pods_are_given_the_time_that_their_end_takes(profile: Profile, tmp_path: Path) -> None:
    manifests = objects(profile.values)
    [text] = files(manifests, "gateway.yaml").values()
    (tmp_path / "gateway.yaml").write_text(text)
    shutdown_s = gateway_config.load(tmp_path / "gateway.yaml", {}).shutdown_s
    [deployment] = of_kind(manifests, "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    hook = spec["containers"][0].get("lifecycle", {}).get("preStop", {})
    waits_s = hook.get("sleep", {}).get("seconds", 0)
    assert spec["terminationGracePeriodSeconds"] >= waits_s + shutdown_s + 15
    for name, pool in files(manifests, "worker.yaml").items():
        (tmp_path / "worker.yaml").write_text(pool)
        drain_s = worker_config.load(tmp_path / "worker.yaml", {}).drain_s
        [stateful] = [
            it for it in of_kind(manifests, "StatefulSet") if it["metadata"]["name"] == name
        ]
        grace_s = stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert grace_s >= drain_s + 15


def test_a_changed_setting_starts_the_pods_anew_and_no_others() -> None:
    def sums(values: dict[str, Any]) -> dict[str, str]:
        return {
            name: pod["metadata"]["annotations"]["checksum/config"]
            for name, pod in policies.pods(objects(values))
            if "checksum/config" in pod["metadata"].get("annotations", {})
        }

    pools = [{"name": "a"}, {"name": "b"}]
    before = sums({"pools": pools})
    assert len(before) == 3
    changed = sums({"pools": [{"name": "a", "config": {"threads": 3}}, pools[1]]})
    assert {name for name in before if before[name] != changed[name]} == {
        f"StatefulSet {RELEASE}-pando-worker-a"
    }
    changed = sums({"pools": pools, "gateway": {"config": {"log_level": "debug"}}})
    assert {name for name in before if before[name] != changed[name]} == {
        f"Deployment {RELEASE}-pando-gateway"
    }


def test_a_new_version_of_the_chart_alone_starts_nothing_anew(tmp_path: Path) -> None:
    newer = tmp_path / "pando"
    shutil.copytree(CHART, newer)
    text = (newer / "Chart.yaml").read_text("utf-8")
    (newer / "Chart.yaml").write_text(text.replace("\nversion: 0.1.0", "\nversion: 0.1.1"))

    def templates(chart: Path) -> list[tuple[str, policies.Pod]]:
        pods = policies.pods(objects(EVERYTHING, chart))
        return [(name, pod) for name, pod in pods if not name.startswith("Pod ")]

    assert templates(newer) == templates(CHART)
    assert objects(EVERYTHING, newer) != objects(EVERYTHING)


def test_a_worker_is_called_as_its_pod_is() -> None:
    [stateful] = of_kind(objects({}), "StatefulSet")
    [container] = stateful["spec"]["template"]["spec"]["containers"]
    assert container["args"][-2:] == ["--name", "$(POD_NAME)"]
    [name] = [it for it in container["env"] if it["name"] == "POD_NAME"]
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_a_worker_may_load_its_model_for_as_long_as_it_is_given() -> None:
    for seconds in (12, 1800):
        [stateful] = of_kind(objects({"worker": {"startupSeconds": seconds}}), "StatefulSet")
        [container] = stateful["spec"]["template"]["spec"]["containers"]
        probe = container["startupProbe"]
        assert 0 <= probe["periodSeconds"] * probe["failureThreshold"] - seconds < 5


def test_ranks_have_their_shared_memory() -> None:
    large, small = of_kind(objects(ALL["values-gpu"].values), "StatefulSet")
    volumes = {it["name"]: it for it in large["spec"]["template"]["spec"]["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
    [container] = large["spec"]["template"]["spec"]["containers"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    assert "shm" not in {it["name"] for it in small["spec"]["template"]["spec"]["volumes"]}


def test_a_gateway_waits_before_it_leaves() -> None:
    [deployment] = of_kind(objects({"gateway": {"preStopSeconds": 7}}), "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["lifecycle"]["preStop"] == {"sleep": {"seconds": 7}}


def test_an_external_redis_is_known_by_its_secret() -> None:
    [deployment] = of_kind(objects(ALL["external-redis"].values), "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    source = {"secretKeyRef": {"name": "redis-url", "key": "url"}}
    assert container["env"] == [{"name": "PANDO_REDIS_URL", "valueFrom": source}]


def test_models_lie_where_the_files_say() -> None:
    manifests = objects(ALL["models-from-everywhere"].values)
    pools = files(manifests, "worker.yaml")
    found = {name.rpartition("-")[2]: re.findall(r"model: (\S+)", it) for name, it in pools.items()}
    assert found == {"node": ["/models/a"], "fetched": ["/models/b"], "claimed": ["/models/c.gguf"]}
    own = files(objects({}), "worker.yaml")
    assert "model: smollm2-135m-instruct\n" in next(iter(own.values()))


def test_only_v1_is_shown_to_the_world() -> None:
    manifests = objects(EVERYTHING)
    [ingress] = of_kind(manifests, "Ingress")
    paths = [it["path"] for rule in ingress["spec"]["rules"] for it in rule["http"]["paths"]]
    assert paths == ["/v1"]
    [route] = of_kind(manifests, "HTTPRoute")
    matches = [it["path"]["value"] for rule in route["spec"]["rules"] for it in rule["matches"]]
    assert matches == ["/v1"]


def test_certificates_are_for_the_name_that_gateways_ask_for(tmp_path: Path) -> None:
    manifests = objects(EVERYTHING)
    [text] = files(manifests, "gateway.yaml").values()
    (tmp_path / "gateway.yaml").write_text(text)
    tls = gateway_config.load(tmp_path / "gateway.yaml", {}).link.tls
    assert tls is not None
    by_usage = {it["spec"]["usages"][0]: it for it in of_kind(manifests, "Certificate")}
    assert by_usage["server auth"]["spec"]["dnsNames"] == [tls.server_name]
    secrets = {
        volume["secret"]["secretName"]
        for _, pod in policies.pods(manifests)
        for volume in pod["spec"].get("volumes", [])
        if volume["name"] == "tls"
    }
    assert secrets == {it["spec"]["secretName"] for it in by_usage.values()}


def test_with_tls_the_kubelet_needs_no_certificate() -> None:
    for values, probe in (({}, "grpc"), (EVERYTHING, "tcpSocket")):
        stateful = of_kind(objects(values), "StatefulSet")
        [worker] = [it for it in stateful if it["metadata"]["name"].endswith(("chat", "small"))]
        [container] = worker["spec"]["template"]["spec"]["containers"]
        assert probe in container["startupProbe"]
        assert probe in container["readinessProbe"]


def test_the_notes_say_what_is_open() -> None:
    def notes(values: Any) -> str:
        return next(text for path, text in render(values).items() if path.endswith("NOTES.txt"))

    assert "anyone who reaches the gateway may ask" in notes({})
    assert "in the clear" in notes({})
    assert "may ask" not in notes(EVERYTHING)
    assert "in the clear" not in notes(EVERYTHING)


def test_the_schema_has_the_settings_that_the_programs_have() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    written = {name: it for name, it in schema["definitions"].items() if is_ours(name)}
    assert written == definitions(), "python -m tests.deploy --write"


def keys(schema: dict[str, Any], root: dict[str, Any], path: str = "") -> set[str]:
    """Every key that the schema knows by name, but what is made of the programs' types."""
    reference = schema.get("$ref", "")
    if is_ours(reference.rpartition("/")[2]):
        return set()
    if reference:
        return keys(root["definitions"][reference.rpartition("/")[2]], root, path)
    found = set()
    for name, inner in schema.get("properties", {}).items():
        found |= {f"{path}.{name}"} | keys(inner, root, f"{path}.{name}")
    return found


def named(values: Any, path: str = "") -> set[str]:
    """Every key of values, lists' members apart."""
    found = set()
    for name, inner in values.items() if isinstance(values, dict) else ():
        found |= {f"{path}.{name}"} | named(inner, f"{path}.{name}")
    return found


def test_values_and_schema_know_the_same_keys() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    known = keys(schema, schema)
    written = named(read(CHART / "values.yaml"))
    free = tuple(
        f".{path}."
        for path in (
            *("gateway.config", "gateway.resources", "gateway.affinity"),
            *("worker.config", "worker.resources", "worker.affinity"),
            *("redis.own.resources", "monitoring.dashboards.labels"),
        )
    )
    assert {it for it in written - known if not it.startswith(free)} == set()
    assert {it for it in known - written if not it.startswith((*free, ".global"))} == set()


def test_every_level_of_the_schema_is_closed_and_says_what_it_is() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))

    def judge(part: Any, path: str) -> list[str]:
        if not isinstance(part, dict) or "$ref" in part or path.startswith("/definitions/worker."):
            return []
        found = [] if part.get("description") else [f"{path} says nothing"]
        if part.get("type") == "object" and part.get("properties"):
            found += [] if part.get("additionalProperties") is False else [f"{path} is open"]
        for name, inner in part.get("properties", {}).items():
            found += judge(inner, f"{path}/{name}")
        return found

    found = [text for name, part in schema["properties"].items() for text in judge(part, name)]
    for name, part in schema["definitions"].items():
        if not is_ours(name):
            found += judge(part, name)
    assert found == []
    assert schema["additionalProperties"] is False


def test_what_is_wrong_is_found() -> None:
    [deployment] = of_kind(objects({}), "Deployment")
    deployment["spec"]["replica"] = 3
    assert "replica" in " ".join(strict.complaints(deployment))
    pod = deployment["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = "pando/gateway:latest"
    pod["containers"][0]["securityContext"] = {"runAsUser": 0}
    del pod["containers"][0]["livenessProbe"], pod["securityContext"]["runAsUser"]
    said = "\n".join(policies.complaints([deployment]))
    for words in ("not pinned", "capabilities", "root is writable", "as root", "livenessProbe"):
        assert words in said
    assert "no NetworkPolicy" in said
    assert "account is not there" in " ".join(references.complaints([deployment]))
    [monitor] = of_kind(objects(EVERYTHING), "PodMonitor")
    monitor["spec"]["podMetricsEndpoint"] = []
    assert "podMetricsEndpoint" in " ".join(strict.complaints(monitor))
