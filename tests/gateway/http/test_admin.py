"""The admin API over HTTP: a tenant's life, and every sentence that refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.config import GatewayConfig
from gateway.errors import Unauthenticated
from gateway.fleet.workers import WorkerInfo
from gateway.request import Usage
from gateway.tenant_config import AdminConfig, RedisConfig, TenantConfig
from tests.gateway.conftest import NoDoor
from tests.gateway.http.admin_live import ADMIN_DIGEST, ADMIN_KEY, LiveAdmin, serving
from tests.gateway.store.conftest import own_redis
from tests.gateway.store.redis_server import RedisServer

__all__ = ["own_redis"]

INLINE = TenantConfig("inline", ("ab" * 32,))


def settings(**others: Any) -> GatewayConfig:
    admin = AdminConfig(port=0, keys=(ADMIN_DIGEST,), body_bytes=4096)
    return GatewayConfig(admin=admin, **others)


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[LiveAdmin]:
    config = settings(
        tenants_file=str(tmp_path / "tenants.yaml"), tenants=(INLINE,), aliases={"nick": "tiny"}
    )
    async with serving(config) as live:
        yield live


@pytest.fixture
async def http(live: LiveAdmin) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with httpx.AsyncClient(
        base_url=live.url, headers=headers, trust_env=False, timeout=30
    ) as client:
        yield client


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]
    return dict(error)


async def test_a_tenants_life(live: LiveAdmin, http: httpx.AsyncClient) -> None:
    tenants = live.tenancy.tenants
    body = {
        "models": ["tiny"],
        "weight": 2,
        "priority": "high",
        "policy": {"name": "dedicated", "workers": ["w0"]},
        "quota": {"requests_per_minute": 60, "max_queued": 5},
    }
    made = await http.put("/admin/tenants/acme", json=body)
    assert made.status_code == 201
    assert made.json()["keys"] == []
    assert made.headers["etag"] == f'"{made.json()["etag"]}"'
    new = await http.post("/admin/tenants/acme/keys", json={"id": "ci", "expires_in": 3600})
    assert new.status_code == 201
    key = new.json()["key"]
    assert key.startswith("pnd-")
    assert len(key) > 40
    tenant = tenants.of(f"Bearer {key}")
    assert (tenant.id, tenant.weight, tenant.rank, tenant.max_queued) == ("acme", 2.0, 0, 5)
    assert tenant.policy is not None
    assert tenant.policy.workers == ("w0",)

    shown = (await http.get("/admin/tenants/acme")).json()
    assert [one["id"] for one in shown["keys"]] == ["ci"]
    assert shown["source"] == "file"
    assert shown["quota"] == {"requests_per_minute": 60, "max_queued": 5}
    assert key not in json.dumps(shown)
    changed = await http.put("/admin/tenants/acme", json={"weight": 3})
    assert changed.status_code == 200
    assert (changed.json()["weight"], changed.json()["models"]) == (3.0, None)
    assert tenants.of(f"Bearer {key}").weight == 3.0  # its keys stay

    listed = (await http.get("/admin/tenants")).json()
    assert [(one["id"], one["source"]) for one in listed["data"]] == [
        ("acme", "file"),
        ("inline", "inline"),
    ]
    gone = await http.delete("/admin/tenants/acme")
    assert gone.json() == {"id": "acme", "deleted": True}
    with pytest.raises(Unauthenticated):
        tenants.of(f"Bearer {key}")


async def test_a_key_is_rotated(live: LiveAdmin, http: httpx.AsyncClient) -> None:
    tenants = live.tenancy.tenants
    await http.put("/admin/tenants/acme", json={})
    old = (await http.post("/admin/tenants/acme/keys")).json()
    new = (await http.post("/admin/tenants/acme/keys", json={})).json()
    assert old["id"] != new["id"]
    answer = await http.delete(f"/admin/tenants/acme/keys/{old['id']}?expires_in=3600")
    ends = datetime.fromisoformat(answer.json()["keys"][0]["expires_at"])
    assert timedelta(0) < ends - datetime.now(UTC) <= timedelta(hours=1)
    assert tenants.of(f"Bearer {old['key']}") is tenants.of(f"Bearer {new['key']}")
    await http.delete(f"/admin/tenants/acme/keys/{old['id']}?expires_in=0.001")
    await asyncio.sleep(0.01)
    with pytest.raises(Unauthenticated, match="expired"):
        tenants.of(f"Bearer {old['key']}")
    # What has ended cannot be given more time.
    later = await http.delete(f"/admin/tenants/acme/keys/{old['id']}?expires_in=9999")
    assert later.json()["keys"][0]["expired"] is True
    left = await http.delete(f"/admin/tenants/acme/keys/{old['id']}")
    assert [key["id"] for key in left.json()["keys"]] == [new["id"]]


async def test_a_key_that_others_made_can_be_brought_along(
    live: LiveAdmin, http: httpx.AsyncClient
) -> None:
    body = {"keys": [{"sha256": "cd" * 32, "id": "old", "expires_at": "2126-01-01T00:00:00Z"}]}
    shown = (await http.put("/admin/tenants/acme", json=body)).json()
    assert shown["keys"][0]["expires_at"] == "2126-01-01T00:00:00Z"
    assert bytes.fromhex("cd" * 32) in live.tenancy.tenants.roster.entries


async def test_what_a_tenant_names_and_nobody_knows_is_told(
    live: LiveAdmin, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway")
    live.fleet.join(WorkerInfo("w0", "1", "tiny"), NoDoor())
    body: dict[str, Any] = {
        "models": ["tiny", "nick", "tinny"],
        "policy": {"name": "dedicated", "workers": ["w0", "w-typo"]},
    }
    warnings = [
        "models names 'tinny', which no worker serves now.",
        "policy.workers names 'w-typo', and no worker of this name is linked now.",
    ]
    made = await http.put("/admin/tenants/acme", json=body)
    assert (made.status_code, made.json()["warnings"]) == (201, warnings)
    assert caplog.text.count("tenant_doubtful") == 2
    assert (await http.get("/admin/tenants/acme")).json()["warnings"] == warnings
    live.fleet.join(WorkerInfo("w-typo", "1", "tinny"), NoDoor())
    patched = await http.patch("/admin/tenants/acme", json={})
    assert patched.json()["warnings"] == []
    assert caplog.text.count("tenant_doubtful") == 2


async def test_two_writers_do_not_undo_each_other(http: httpx.AsyncClient) -> None:
    first = await http.put("/admin/tenants/acme", json={}, headers={"if-none-match": "*"})
    assert first.status_code == 201
    etag = first.headers["etag"]
    again = await http.put("/admin/tenants/acme", json={}, headers={"if-none-match": "*"})
    assert (again.status_code, error_of(again)["code"]) == (412, "tenant_exists")
    match = {"if-match": etag}
    assert (await http.put("/admin/tenants/acme", json={"weight": 2}, headers=match)).is_success
    for stale in (
        await http.put("/admin/tenants/acme", json={"weight": 3}, headers=match),
        await http.delete("/admin/tenants/acme", headers=match),
    ):
        assert (stale.status_code, error_of(stale)["code"]) == (412, "tenant_changed")
    assert (await http.get("/admin/tenants/acme")).json()["weight"] == 2.0


WHOLE: dict[str, Any] = {
    "namespace": "shared",
    "models": ["tiny", "small"],
    "policy": {"name": "dedicated", "workers": ["w0", "w1"]},
    "weight": 2.0,
    "priority": "high",
    "quota": {"requests_per_minute": 60, "tokens_per_minute": 1000, "max_queued": 5},
    "debug": True,
}


@pytest.mark.parametrize(
    ("patch", "after"),
    [
        ({}, {}),
        ({"weight": 3}, {"weight": 3.0}),
        ({"weight": None, "priority": None}, {"weight": 1.0, "priority": "normal"}),
        ({"models": ["tiny"]}, {"models": ["tiny"]}),
        ({"models": None, "namespace": None}, {"models": None, "namespace": "acme"}),
        (
            {"quota": {"tokens_per_minute": None, "concurrency": 4}},
            {"quota": {"requests_per_minute": 60, "concurrency": 4, "max_queued": 5}},
        ),
        ({"quota": None}, {"quota": {}}),
        (
            {"policy": {"workers": ["w7"]}},
            {"policy": {"name": "dedicated", "workers": ["w7"], "shard_size": 2}},
        ),
        ({"policy": None, "id": "acme"}, {"policy": None}),
    ],
)
async def test_a_patch_changes_what_it_names_and_nothing_else(
    http: httpx.AsyncClient, patch: dict[str, Any], after: dict[str, Any]
) -> None:
    await http.put("/admin/tenants/acme", json=WHOLE)
    await http.post("/admin/tenants/acme/keys", json={"id": "ci"})
    before = (await http.get("/admin/tenants/acme")).json()
    answer = await http.patch("/admin/tenants/acme", json=patch)
    assert answer.status_code == 200
    told = answer.json()
    assert answer.headers["etag"] == f'"{told["etag"]}"'
    assert told | {"warnings": []} == {**before, **after, "etag": told["etag"], "warnings": []}
    assert (told["etag"] == before["etag"]) == (not patch)
    assert (await http.get("/admin/tenants/acme")).json() == told


@pytest.mark.parametrize(
    ("patch", "status", "words"),
    [
        ({"weight": 0}, 400, "weight is 0"),
        ({"quota": {"concurency": 4}}, 400, "concurency"),
        ({"policy": {"name": "cost"}}, 400, "workers is ['w0', 'w1'] for policy 'cost'"),
        ({"id": "other"}, 400, "the URL says 'acme'"),
        ([], 400, "JSON object"),
        ({"quota": {"a": {"b": {"c": {"d": {"e": {}}}}}}}, 400, "unknown field"),
    ],
)
async def test_a_patch_that_would_not_do_changes_nothing(
    http: httpx.AsyncClient, patch: Any, status: int, words: str
) -> None:
    before = (await http.put("/admin/tenants/acme", json=WHOLE)).json()
    refused = await http.patch("/admin/tenants/acme", json=patch)
    assert refused.status_code == status
    assert words in error_of(refused)["message"]
    assert (await http.get("/admin/tenants/acme")).json() == before


async def test_a_patch_wants_a_tenant_that_is_as_if_match_says(http: httpx.AsyncClient) -> None:
    assert (await http.patch("/admin/tenants/acme", json={})).status_code == 404
    etag = (await http.put("/admin/tenants/acme", json=WHOLE)).json()["etag"]
    matching = {"if-match": f'"{etag}"'}
    assert (
        await http.patch("/admin/tenants/acme", json={"weight": 5}, headers=matching)
    ).status_code == 200
    late = await http.patch("/admin/tenants/acme", json={"weight": 6}, headers=matching)
    assert (late.status_code, error_of(late)["code"]) == (412, "tenant_changed")


@pytest.mark.parametrize("kept_in", ["file", "redis"])
async def test_patches_at_once_all_count(
    kept_in: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Two gateways' where they share Redis; a file has one writer."""
    place: dict[str, Any] = {"tenants_file": str(tmp_path / "tenants.json")}
    if kept_in == "redis":
        server: RedisServer = request.getfixturevalue("own_redis")
        place = {"redis": RedisConfig(url=server.url)}
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with serving(settings(**place)) as one, serving(settings(**place)) as other:
        urls = (one.url, other.url if kept_in == "redis" else one.url)
        async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=30) as http:
            await http.put(f"{one.url}/admin/tenants/acme", json={})
            changes: list[dict[str, Any]] = [
                {"weight": 7},
                {"priority": "low"},
                {"quota": {"concurrency": 3}},
                {"quota": {"max_queued": 4}},
            ]
            answers = await asyncio.gather(
                *(
                    http.patch(f"{urls[n % 2]}/admin/tenants/acme", json=change)
                    for n, change in enumerate(changes)
                )
            )
            assert [answer.status_code for answer in answers] == [200] * len(changes)
            told = (await http.patch(f"{one.url}/admin/tenants/acme", json={})).json()
    assert (told["weight"], told["priority"]) == (7.0, "low")
    assert told["quota"] == {"concurrency": 3, "max_queued": 4}


async def test_keys_made_at_once_are_all_there(http: httpx.AsyncClient) -> None:
    await http.put("/admin/tenants/acme", json={})
    answers = await asyncio.gather(*(http.post("/admin/tenants/acme/keys") for _ in range(4)))
    made = {answer.json()["id"] for answer in answers if answer.status_code == 201}
    kept = {key["id"] for key in (await http.get("/admin/tenants/acme")).json()["keys"]}
    assert made == kept
    assert len(made) == 4


WRONG_TENANTS: list[tuple[Any, str | None, list[str]]] = [
    ({"weight": 0}, "weight", ["weight is 0", ">= 0.001"]),
    ({"priority": "urgent"}, "priority", ["'urgent'", "high|normal|low"]),
    ({"quota": {"concurrency": -1}}, "quota.concurrency", ["-1", ">= 1"]),
    ({"quota": {"speed": 1}}, "quota.speed", ["speed"]),
    ({"colour": "red"}, "colour", ["colour"]),
    ({"id": "globex"}, "id", ["globex", "acme"]),
    ({"keys": ["clear"]}, "keys[0]", ["clear"]),
    ({"keys": ["ab" * 32, "ab" * 32]}, "keys.id", ["more than once"]),
    ({"policy": {"name": "dedicated"}}, "policy.workers", ["at least one name"]),
    ({"models": "tiny"}, "models", ["tiny", "array"]),
    ([], None, ["JSON object"]),
]


async def test_a_wrong_tenant_is_refused_with_field_value_and_range(
    http: httpx.AsyncClient,
) -> None:
    for body, param, words in WRONG_TENANTS:
        answer = await http.put("/admin/tenants/acme", json=body)
        assert answer.status_code == 400, body
        error = error_of(answer)
        assert error["param"] == param, body
        assert all(word in error["message"] for word in words), error["message"]
    assert (await http.get("/admin/tenants/acme")).status_code == 404


REFUSALS = [
    ("GET", "/admin/tenants/nobody", 404, "tenant_not_found"),
    ("DELETE", "/admin/tenants/nobody", 404, "tenant_not_found"),
    ("POST", "/admin/tenants/nobody/keys", 404, "tenant_not_found"),
    ("GET", "/admin/tenants/nobody/usage", 404, "tenant_not_found"),
    ("DELETE", "/admin/tenants/nobody/keys/k", 404, "tenant_not_found"),
    ("PUT", "/admin/tenants/inline", 409, "tenant_read_only"),
    ("DELETE", "/admin/tenants/inline", 409, "tenant_read_only"),
    ("POST", "/admin/tenants/inline/keys", 409, "tenant_read_only"),
    ("PUT", "/admin/tenants/not%20a%20name", 400, "invalid_value"),
    ("GET", "/admin/tenants/inline/usage?days=0", 400, "invalid_value"),
    ("GET", "/admin/tenants/inline/usage?days=many", 400, "invalid_value"),
    ("GET", "/admin/tenants/inline/usage?by=year", 400, "invalid_value"),
    ("PATCH", "/admin/tenants/inline", 409, "tenant_read_only"),
    ("POST", "/admin/tenants/inline", 405, "method_not_allowed"),
    ("GET", "/admin/nothing", 404, "unknown_url"),
    ("GET", "/v1/models", 404, "unknown_url"),
]


async def test_what_cannot_be_done_is_a_sentence(http: httpx.AsyncClient) -> None:
    for method, path, status, code in REFUSALS:
        answer = await http.request(method, path, content=b"{}")
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, code), (method, path)
        assert error["message"].endswith(".")


async def test_keys_are_refused_with_sentences(http: httpx.AsyncClient) -> None:
    await http.put("/admin/tenants/acme", json={})
    await http.post("/admin/tenants/acme/keys", json={"id": "ci"})
    for body, code, param in (
        ({"id": "ci"}, "key_exists", "id"),
        ({"expires_in": -1}, "invalid_value", "expires_in"),
        ({"expires_in": 5, "expires_at": "2126-01-01T00:00:00Z"}, "invalid_value", "expires_at"),
        ({"expires_at": "tomorrow"}, "invalid_value", "expires_at"),
    ):
        error = error_of(await http.post("/admin/tenants/acme/keys", json=body))
        assert (error["code"], error["param"]) == (code, param)
    missing = await http.delete("/admin/tenants/acme/keys/other")
    assert (missing.status_code, error_of(missing)["code"]) == (404, "key_not_found")
    wrong = await http.delete("/admin/tenants/acme/keys/ci?expires_in=soon")
    assert error_of(wrong)["param"] == "expires_in"


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer", "Basic x", ADMIN_KEY])
async def test_nobody_else_may(live: LiveAdmin, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    async with httpx.AsyncClient(base_url=live.url, trust_env=False) as client:
        for method, path in (("GET", "/admin/tenants"), ("PUT", "/admin/tenants/acme")):
            answer = await client.request(method, path, headers=headers)
            assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")


async def test_a_body_has_a_limit(http: httpx.AsyncClient) -> None:
    answer = await http.put("/admin/tenants/acme", content=b'{"models": ["' + b"x" * 5000)
    assert (answer.status_code, error_of(answer)["code"]) == (413, "request_too_large")
    broken = await http.put("/admin/tenants/acme", content=b"{")
    assert error_of(broken)["code"] == "invalid_json"


async def test_usage_is_told_by_day_and_by_hour(live: LiveAdmin, http: httpx.AsyncClient) -> None:
    live.tenancy.ledger.count("inline", Usage(100, 60, 7))
    live.tenancy.ledger.count("inline", Usage(1, 0, 1))
    await live.tenancy.ledger.flush()
    by_day = (await http.get("/admin/tenants/inline/usage")).json()
    assert [row["prompt_tokens"] for row in by_day["data"]] == [101]
    assert by_day["total"]["requests"] == 2
    assert by_day["total"]["cached_tokens"] == 60
    by_hour = (await http.get("/admin/tenants/inline/usage?by=hour&days=1")).json()
    assert by_hour["data"][0]["start"].endswith(":00:00Z")
    assert by_hour["data"][0]["completion_tokens"] == 8


async def test_the_fleet_is_told(live: LiveAdmin, http: httpx.AsyncClient) -> None:
    assert (await http.get("/admin/fleet")).json()["data"] == []
    live.fleet.join(WorkerInfo("w0", "incarnation", "tiny"), NoDoor())
    (worker,) = (await http.get("/admin/fleet")).json()["data"]
    assert (worker["name"], worker["model"], worker["draining"]) == ("w0", "tiny", False)
    assert worker["load"]["leases"] == 0


async def test_without_a_place_to_write_nothing_is_written() -> None:
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with (
        serving(settings(tenants=(INLINE,))) as live,
        httpx.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as client,
    ):
        answer = await client.put("/admin/tenants/acme", json={})
        assert (answer.status_code, error_of(answer)["code"]) == (409, "no_tenant_store")


async def test_a_broken_file_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text("tenants: [")
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with (
        serving(settings(tenants_file=str(path))) as live,
        httpx.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as client,
    ):
        answer = await client.put("/admin/tenants/acme", json={})
        assert (answer.status_code, error_of(answer)["code"]) == (409, "source_broken")
        assert "tenants.yaml" in error_of(answer)["message"]
    assert path.read_text() == "tenants: ["


async def test_redis_that_is_away_is_told_and_logged(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own_redis.stop()
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    config = settings(redis=RedisConfig(url=own_redis.url), tenants=(INLINE,))
    async with (
        serving(config) as live,
        httpx.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as client,
    ):
        for answer in (
            await client.put("/admin/tenants/acme", json={}),
            await client.get("/admin/tenants/inline/usage"),
        ):
            assert (answer.status_code, error_of(answer)["code"]) == (503, "store_unavailable")
            assert int(answer.headers["retry-after"]) >= 1
        assert (await client.get("/admin/tenants/inline")).status_code == 200
    assert "admin_refused" in caplog.text
    assert "ConnectionError" in caplog.text
