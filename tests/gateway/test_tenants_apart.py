"""What one tenant may send to reach another's cache, sessions, responses or share of the queue."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from gateway.tenancy.keys import digest_of
from gateway.tenant_config import AdminConfig, TenantConfig, TenantQuota
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fake_worker import FakeWorker, endless

SYSTEM = {"role": "system", "content": "You answer questions about trees. " * 20}
CHAT = {"model": "tiny", "messages": [SYSTEM, {"role": "user", "content": "Why?"}]}
PROGRAM = [{"op": "text", "text": ["A "]}, {"op": "gen", "name": "x", "max_tokens": 2}]


def tenant(name: str, **settings: Any) -> TenantConfig:
    return TenantConfig(name, (digest_of(f"pnd-{name}"),), **settings)


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer pnd-{name}"}


async def two_tenants(start_worker: StartWorker, serve_linked: Serve) -> tuple[Live, FakeWorker]:
    worker = await start_worker()
    return await serve_linked(worker, tenants=(tenant("acme"), tenant("other"))), worker


async def asked(live: Live, worker: FakeWorker, name: str, **more: Any) -> pb.Submit:
    """What the worker is asked for a tenant's chat."""
    headers = {**key(name), **more.pop("headers", {})}
    response = await live.http.post("/v1/chat/completions", json={**CHAT, **more}, headers=headers)
    assert response.status_code == 200, response.text
    return worker.submits[-1]


def digests(submit: pb.Submit) -> set[bytes]:
    return {boundary.digest for boundary in submit.boundaries}


FORGED: list[dict[str, Any]] = [
    {"prompt_cache_key": "acme"},
    {"user": "acme"},
    {"chat_template_kwargs": {"namespace": "acme", "cache_salt": "acme"}},
    {"headers": {"x-pando-prefix": "acme"}},
    {"headers": {"x-pando-document": "acme", "x-pando-session": "acme"}},
    {"headers": {"x-pando-namespace": "acme", "x-pando-tenant": "acme"}},
    {"headers": {"openai-organization": "acme", "x-forwarded-user": "acme"}},
]


async def test_no_field_or_header_moves_a_tenant_into_anothers_namespace(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    live, worker = await two_tenants(start_worker, serve_linked)
    theirs = await asked(live, worker, "acme")
    assert theirs.namespace == b"acme"
    assert digests(theirs)
    for forged in FORGED:
        ours = await asked(live, worker, "other", **forged)
        assert (ours.namespace, ours.tenant) == (b"other", "other"), forged
        assert not digests(theirs) & digests(ours), forged


async def test_a_field_that_would_name_a_namespace_is_refused(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    live, _ = await two_tenants(start_worker, serve_linked)
    for field in ("cache_salt", "namespace", "tenant", "priority", "share"):
        body = {**CHAT, field: "acme"}
        response = await live.http.post("/v1/chat/completions", json=body, headers=key("other"))
        assert response.status_code == 400
        assert response.json()["error"]["param"] == field


async def test_a_response_of_anybodys_cannot_be_named(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    live, _ = await two_tenants(start_worker, serve_linked)
    body = {"model": "tiny", "input": "Hi"}
    made = (await live.http.post("/v1/responses", json=body, headers=key("acme"))).json()["id"]
    for name in ("acme", "other"):
        named = {**body, "previous_response_id": made}
        response = await live.http.post("/v1/responses", json=named, headers=key(name))
        assert response.json()["error"]["param"] == "previous_response_id"
        read = await live.http.get(f"/v1/responses/{made}", headers=key(name))
        assert read.status_code in (404, 405), "nothing is kept that could be read"


async def test_a_session_is_asked_for_in_the_namespace_of_who_asks(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    live, worker = await two_tenants(start_worker, serve_linked)
    session = {"id": "w0~guessed", "ttl_s": 30}
    body = {"model": "tiny", "program": PROGRAM, "session": session}
    await live.http.post("/v1/programs", json=body, headers=key("other"))
    submit = worker.submits[-1]
    assert submit.session.resumes
    assert (submit.session.id, submit.namespace) == ("guessed", b"other")


async def test_requests_of_one_id_are_two(start_worker: StartWorker, serve_linked: Serve) -> None:
    worker = await start_worker(script=endless)
    live = await serve_linked(worker, tenants=(tenant("acme"), tenant("other")))
    streams = [asyncio.create_task(first_words(live, name)) for name in ("acme", "other")]
    assert await asyncio.gather(*streams) == ["one", "one"]
    assert len({submit.request_id for submit in worker.submits}) == 2
    assert {submit.trace_id for submit in worker.submits} == {"one"}


async def first_words(live: Live, name: str) -> str:
    """The id under which a stream with the id `one` is answered."""
    headers = {**key(name), "x-request-id": "one"}
    body = {**CHAT, "stream": True}
    async with live.http.stream(
        "POST", "/v1/chat/completions", json=body, headers=headers
    ) as stream:
        lines = stream.aiter_lines()
        while "and" not in await anext(lines):
            pass
        return str(stream.headers["x-request-id"])


async def test_limits_of_one_tenant_are_not_spent_by_another(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    quota = TenantQuota(requests_per_minute=2)
    worker = await start_worker()
    live = await serve_linked(
        worker, tenants=(tenant("acme", quota=quota), tenant("other", quota=quota))
    )

    async def ask(name: str) -> httpx.Response:
        return await live.http.post("/v1/chat/completions", json=CHAT, headers=key(name))

    assert [(await ask("other")).status_code for _ in range(3)] == [200, 200, 429]
    answered = await ask("acme")
    assert answered.status_code == 200
    assert answered.headers["x-ratelimit-remaining-requests"] == "1"
    refused = await ask("other")
    assert "acme" not in refused.text


async def test_a_tenants_key_opens_no_door_of_the_operator(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    live, _ = await two_tenants(start_worker, serve_linked)
    for path in ("/admin/tenants", "/admin/fleet", "/v1/admin/tenants"):
        assert (await live.http.get(path, headers=key("acme"))).status_code == 404
    assert AdminConfig().port is None, "there is no admin API unless it is asked for"
    assert AdminConfig().host == "127.0.0.1"
