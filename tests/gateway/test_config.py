"""One file, a few flags, and errors that say what to mend."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from gateway.__main__ import _configure
from gateway.config import ConfigError, WorkerConfig, load, worker_flag

FILE = """
port: 9000
workers:
  - {name: w0, address: "127.0.0.1:50051"}
  - {address: "worker-1.pando:50051"}
aliases: {gpt: tiny}
tenants:
  - {id: acme, keys: ["sha256:%s"], models: [tiny]}
limits: {choices: 4}
link: {silence_s: 2.5}
""" % ("a" * 64)


def foreign(name: str, url: str = "http://h:8000/v1") -> dict[str, object]:
    return {"name": name, "url": url}


def test_a_file_is_read_and_the_rest_has_defaults(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(FILE)
    config = load(path, {})
    assert config.port == 9000
    assert config.workers[0] == WorkerConfig("127.0.0.1:50051", "w0")
    assert config.workers[1].name is None
    assert (config.limits.choices, config.limits.messages) == (4, 2048)
    assert config.link.silence_s == 2.5
    assert config.keep_alive_s == 15.0


def test_json_is_a_config_file_too(tmp_path: Path) -> None:
    path = tmp_path / "gateway.json"
    path.write_text(json.dumps({"port": 1234}))
    assert load(path, {}).port == 1234


def test_flags_stand_over_the_file_and_workers_come_in_addition(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(FILE)
    of_file = load(path, {}).workers
    config = _configure(
        ["--config", str(path), "--port", "0", "--worker", "a=[::1]:1", "--worker", "h:2"]
    )
    assert config.port == 0
    assert config.workers == (*of_file, WorkerConfig("[::1]:1", "a"), WorkerConfig("h:2"))
    assert config.aliases == {"gpt": "tiny"}


def test_paths_in_a_file_are_meant_from_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(
        "tenants_file: tenants.yaml\nlink: {tls: {ca: /ca.pem, cert: c.pem, key: sub/c.key}}\n"
    )
    config = load(path, {})
    assert config.tenants_file == str(tmp_path / "tenants.yaml")
    tls = config.link.tls
    assert tls is not None
    assert (tls.ca, tls.cert) == ("/ca.pem", str(tmp_path / "c.pem"))
    assert tls.key == str(tmp_path / "sub" / "c.key")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"port": 70000}, ["port", "70000", "65535"]),
        ({"limits": {"choices": 0}}, ["limits.choices", "0", ">= 1"]),
        ({"link": {"silence_s": -1}}, ["link.silence_s", "-1", "> 0"]),
        ({"workers": [{"address": "nowhere"}]}, ["workers[0].address", "nowhere"]),
        ({"workers": [worker_flag("a:1"), worker_flag("b=a:1")]}, ["workers.address", "a:1"]),
        ({"workers": [worker_flag("a=b:1"), worker_flag("a=b:2")]}, ["workers.name", "'a'"]),
        ({"colour": "red"}, ["colour"]),
        ({"tenants": [{"id": "a", "keys": []}]}, ["tenants[0].keys", "[]"]),
        ({"tenants": [{"id": "a", "keys": ["clear"]}]}, ["tenants[0].keys[0]", "clear"]),
        ({"link": {"backoff_min_s": 9}}, ["link.backoff_min_s", "9", "3.0"]),
        ({"log_level": "loud"}, ["log_level", "loud"]),
        ({"tenants": [{"id": "a", "keys": ["a" * 64], "weight": 0}]}, ["tenants[0].weight", "0"]),
        (
            {"tenants": [{"id": "a", "keys": ["a" * 64], "priority": "urgent"}]},
            ["tenants[0].priority", "urgent", "high|normal|low"],
        ),
        (
            {"tenants": [{"id": "a", "keys": ["a" * 64], "quota": {"concurrency": 0}}]},
            ["tenants[0].quota.concurrency", "0", ">= 1"],
        ),
        (
            {"tenants": [{"id": "a", "keys": ["a" * 64, {"sha256": "a" * 64, "id": "x"}]}]},
            ["tenants[0].keys.sha256", "more than once"],
        ),
        (
            {"tenants": [{"id": "a", "keys": ["a" * 64]}, {"id": "b", "keys": ["a" * 64]}]},
            ["tenants.keys", "more than once"],
        ),
        ({"admin": {"port": 1}}, ["admin.keys", "[]"]),
        ({"redis": {"url": "http://u:secret@x"}}, ["redis.url", "http://***@x", "redis|rediss"]),
        ({"redis": {"timeout_s": 0}}, ["redis.timeout_s", "0", "> 0"]),
        ({"quota": {"cached_token_share": 2}}, ["quota.cached_token_share", "2", "<= 1"]),
        (
            {"redis": {"url": "redis://u:secret@h:99999"}},
            ["redis.url", "//***@h:99999", "1 to 65535"],
        ),
        ({"redis": {"url": "redis://h:x"}}, ["redis.url", "h:x", "1 to 65535"]),
        ({"workers": [worker_flag("a:65536")]}, ["workers[0].address", "a:65536", "1 to 65535"]),
        ({"workers": [worker_flag("a:0")]}, ["workers[0].address", "a:0", "1 to 65535"]),
        ({"dns": {"name": "a", "port": 65536}}, ["dns.port", "65536", "65535"]),
        ({"foreign": [foreign("a", "http://h:99999")]}, ["foreign[0].url", "99999", "65535"]),
        ({"foreign": [foreign("a", "http://h:x/v1")]}, ["foreign[0].url", "h:x", "65535"]),
        ({"foreign": [foreign("a"), foreign("a")]}, ["foreign.name", "'a'", "more than once"]),
        (
            {"foreign": [foreign("a")], "workers": [worker_flag("a=b:1")]},
            ["foreign.name", "'a'", "a worker has this name"],
        ),
        (
            {"foreign": [{**foreign("a"), "kind": "tgi"}]},
            ["foreign[0].kind", "'tgi'", "vllm, sglang, openai"],
        ),
        (
            {"routing": {"policy": {"name": "random"}}},
            ["routing.policy.name", "'random'", "least_loaded, round_robin"],
        ),
        (
            {"tenants": [{"id": "a", "keys": ["a" * 64], "policy": {"name": "x"}}]},
            ["tenants[0].policy.name", "'x'", "cost, consistent"],
        ),
        ({"breaker": {"open_s": 61}}, ["breaker.open_s", "61", "max_open_s", "60.0"]),
        ({"queue": {"hold_s": 9, "max_wait_s": 2}}, ["queue.hold_s", "9", "max_wait_s", "2"]),
        ({"routing": {"vnodes": 65537}}, ["routing.vnodes", "65537", "<= 65536"]),
        ({"limits": {"body_bytes": 2**26}}, ["limits.body_bytes", "67108864", "<= 62914560"]),
        ({"link": {"wedge_s": math.inf}}, ["link.wedge_s", "inf", "finite"]),
        ({"routing": {"load_factor": math.inf}}, ["routing.load_factor", "inf", "finite"]),
        ({"foreign": [{**foreign("a"), "poll_s": math.nan}]}, ["foreign[0].poll_s", "nan"]),
        ({"aliases": {"gpt": "gpt"}}, ["aliases.gpt", "'gpt'", "another name"]),
    ],
)
def test_an_error_names_field_value_and_range(
    settings: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, settings)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_settings_that_hold_themselves_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("aliases: &x {a: *x}")
    with pytest.raises(ConfigError, match=r"aliases\.a\.a.*nested too deeply"):
        load(path, {})


@pytest.mark.parametrize("text", ["- a", "port: [", "3"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"gateway\.yaml"):
        load(path, {})
    with pytest.raises(ConfigError, match="missing"):
        load(tmp_path / "missing.yaml", {})


def test_a_key_may_have_a_name_and_an_end(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    ci_key = f"{{sha256: {'b' * 64}, id: ci, expires_at: 2026-01-31T00:00:00Z}}"
    path.write_text(f"tenants: [{{id: acme, keys: [{'a' * 64}, {ci_key}]}}]")
    plain, ci = load(path, {}).tenants[0].all_keys
    assert (plain.name, plain.expires_at) == ("a" * 12, None)
    assert ci.name == "ci"
    assert ci.expires_at is not None
    assert ci.expires_at.isoformat() == "2026-01-31T00:00:00+00:00"


def test_secrets_come_from_the_environment() -> None:
    file: dict[str, object] = {"redis": {"url": "redis://file", "prefix": "mine"}}
    config = load(None, file, {"PANDO_REDIS_URL": "redis://:secret@environment"})
    assert (config.redis.url, config.redis.prefix) == ("redis://:secret@environment", "mine")
    assert load(None, file, {"PANDO_REDIS_URL": ""}).redis.url == "redis://file"
    assert load(None, {}, {}).redis.url is None
    with pytest.raises(ConfigError) as caught:
        load(None, {}, {"PANDO_REDIS_URL": "ftp://u:secret@x"})
    assert "secret" not in str(caught.value)
