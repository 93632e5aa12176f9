"""What the page is told by a live gateway with scripted workers, and who is told."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gateway.config import GatewayConfig, WorkerConfig
from gateway.doctor.finding import Finding, Reason
from gateway.doctor.recent import MAX_TENANTS, Recent
from gateway.fleet.workers import Fleet
from gateway.telemetry.lives import MAX_DEPTH
from gateway.telemetry.metrics import Subject, Telemetry
from gateway.tenancy.keys import digest_of
from gateway.tenant_config import AdminConfig, TenantConfig
from gateway.ui.fleet import Crew
from gateway.ui.history import History
from gateway.ui.misses import ReasonRow, misses
from gateway.ui.routes import POLICY
from gateway.ui.state import FRESH_S, Sources, State
from gateway.ui.tenants import TenantRow, tenant_table
from proto import worker_pb2 as pb
from tests.gateway.conftest import FAST_LINK, Live, NoDoor, Serve, StartWorker, served
from tests.gateway.fake_worker import failing, words
from tests.gateway.test_doctor_live import telling
from tests.gateway.ui.scene import Clock, life, worker

SECRET = "the launch code is 0000"
PATHS = ["/ui", "/ui/page.js", "/ui/page.css", "/ui/state.json", "/ui/request.json?id=x"]
ADMIN_KEY = "adm-secret"


async def ask(live: Live, turn: int, **headers: str) -> httpx.Response:
    messages = [
        {"role": "system", "content": f"{SECRET}. " * 20},
        {"role": "user", "content": f"Question {turn}"},
    ]
    body = {"model": "tiny", "messages": messages}
    return await live.http.post("/v1/chat/completions", json=body, headers=headers)


async def state(live: Live) -> dict[str, Any]:
    answer = await live.http.get("/ui/state.json")
    assert answer.status_code == 200
    told: dict[str, Any] = answer.json()
    return told


async def test_the_state_tells_of_fleet_prefixes_tenants_misses_and_requests(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    load = pb.Load(running_sequences=2, waiting_sequences=1, used_pages=30, total_pages=100)
    load.prompt_tokens_total, load.cached_tokens_total = 1000, 400
    live = await serve_linked(await start_worker(script=telling(200, 150), load=load))
    for turn in range(3):
        await ask(live, turn)
    await live.until(lambda: live.gateway.fleet.workers()[0].load.running_sequences == 2)
    told = await state(live)
    (row,) = told["workers"]
    assert (row["name"], row["link"], row["breaker"]) == ("w0", "up", "closed")
    assert (row["running"], row["waiting"], row["used_pages"]) == (2, 1, 30)
    assert row["hit_rate"] == 0.4
    (tree,) = told["prefixes"]
    assert (tree["tenant"], tree["requests"]) == ("default", 3)
    assert [(node["requests"], node["roles"]) for node in tree["below"]] == [(3, ["system"])]
    (tenant,) = told["tenants"]["rows"]
    assert (tenant["id"], tenant["requests"], tenant["prompt_tokens"]) == ("default", 3, 600)
    assert tenant["running"] == tenant["waiting"] == 0
    assert sum(reason["prompts"] for reason in told["misses"]["reasons"]) == 3
    assert [row["status"] for row in told["requests"]] == [200, 200, 200]
    assert SECRET not in (await live.http.get("/ui/state.json")).text


async def test_a_request_is_followed_from_its_arrival_to_its_end(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    bad = await start_worker(name="w0", script=failing(pb.OVERLOADED))
    good = await start_worker(name="w1", script=words)
    live = await serve_linked(bad, good)
    for turn in range(8):
        # One goes to the worker that is full first; which one is the ring's.
        answer = await ask(
            live, turn, **{"x-request-id": f"my-{turn}", "x-pando-prefix": f"{turn}"}
        )
        assert answer.status_code == 200
    lives = [
        (await live.http.get("/ui/request.json", params={"id": f"my-{turn}"})).json()
        for turn in range(8)
    ]
    moved = [one for one in lives if len(one["steps"]) == 5]
    assert moved, "none went to the worker that is full"
    what = [step["what"] for step in moved[0]["steps"]]
    assert what == [
        "arrived and queued",
        "sent to w0",
        "sent to w1",
        "first output",
        "ended: finished",
    ]
    times = [step["at_s"] for step in moved[0]["steps"]]
    assert times == sorted(times)
    assert "worker=w1" in moved[0]["explanation"]
    assert moved[0]["reason"].startswith("hit=3/7")
    assert (moved[0]["prompt_tokens"], moved[0]["completion_tokens"]) == (7, 3)
    before, after = moved[0]["workers"]
    assert (before["worker"], after["worker"]) == ("w0", "w1")
    assert before["at_s"] + before["seconds"] <= after["at_s"]
    assert after["phases"] == []
    unknown = await live.http.get("/ui/request.json", params={"id": "<script>"})
    assert unknown.status_code == 404


async def test_a_worker_that_is_away_is_shown_with_the_reason(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    fake = await start_worker()
    live = await serve_linked(fake)
    await fake.stop()
    await live.until(lambda: not live.gateway.fleet.workers())
    (row,) = (await state(live))["workers"]
    assert (row["name"], row["link"]) == ("w0", "down")
    assert row["detail"]


async def test_a_long_prompt_leaves_only_its_first_boundaries(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    live = await serve_linked(await start_worker())
    messages = [{"role": "user", "content": "So?"}, {"role": "assistant", "content": "So."}] * 50
    body = {"model": "tiny", "messages": [*messages, {"role": "user", "content": "Go on."}]}
    assert (await live.http.post("/v1/chat/completions", json=body)).status_code == 200
    (one,) = live.gateway.telemetry.lives
    assert len(one.beginning.digests) == len(one.beginning.roles) == MAX_DEPTH


async def test_with_tenants_the_public_server_knows_no_page(serve: Serve) -> None:
    live = await serve(tenants=(TenantConfig("acme", (digest_of("pnd-acme"),)),))
    for path in PATHS:
        for headers in ({}, {"authorization": "Bearer pnd-acme"}):
            assert (await live.http.get(path, headers=headers)).status_code == 404


@contextlib.asynccontextmanager
async def admin_client() -> AsyncIterator[httpx.AsyncClient]:
    """Of a gateway with tenants, whose admin API is served."""
    admin = AdminConfig(port=0, keys=(digest_of(ADMIN_KEY),))
    tenants = (TenantConfig("acme", (digest_of("pnd-acme"),)),)
    target = WorkerConfig("127.0.0.1:1", name="never-there")
    config = GatewayConfig(
        port=0, admin=admin, tenants=tenants, workers=(target,), link=FAST_LINK, shutdown_s=1.0
    )
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with (
        served(config, listener),
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http,
    ):
        yield http


async def test_the_admin_server_gives_the_files_to_all_and_the_data_to_its_keys() -> None:
    async with admin_client() as http:
        for path in PATHS[:3]:
            answer = await http.get(path)
            assert answer.status_code == 200
            assert answer.headers["content-security-policy"] == POLICY
            assert "acme" not in answer.text
            assert "never-there" not in answer.text
        for path in PATHS[3:]:
            for key in ("pnd-acme", "wrong"):
                answer = await http.get(path, headers={"authorization": f"Bearer {key}"})
                assert answer.status_code == 401
            assert (await http.get(path)).status_code == 401
        mine = {"authorization": f"Bearer {ADMIN_KEY}"}
        told = (await http.get("/ui/state.json", headers=mine)).json()
        assert [row["name"] for row in told["workers"]] == ["never-there"]
        assert (await http.get("/ui/request.json?id=x", headers=mine)).status_code == 404
        assert (await http.post("/ui/state.json", headers=mine)).status_code == 405


@pytest.mark.parametrize("name", ["page.html", "page.js", "page.css"])
def test_nothing_in_the_files_comes_from_elsewhere(name: str) -> None:
    text = files("gateway.ui").joinpath(name).read_text("utf-8")
    text = text.replace("http://www.w3.org/2000/svg", "")
    for mark in ("http:", "https:", "//cdn", "innerHTML", "<style", " onclick", "eval("):
        assert mark not in text


async def test_however_many_look_the_state_is_read_once_a_second() -> None:
    clock = Clock()
    telemetry, fleet = Telemetry(CollectorRegistry(), clock), Fleet(clock=clock)
    history = History(telemetry.totals, clock)
    crew = Crew(fleet, lambda: [], ("elsewhere",), clock)
    state = State(Sources("gw", fleet, crew, history, telemetry, None, dict))
    first = await state.page()
    telemetry.lives.add(life("s"))
    clock.now += FRESH_S / 2
    assert await state.page() is first
    clock.now += FRESH_S / 2
    told = msgspec.json.decode(await state.page())
    assert [row["id"] for row in told["requests"]] == ["req-s"]
    assert not told["misses"]["known"]
    assert [(row["name"], row["link"]) for row in told["workers"]] == [("elsewhere", "down")]


def test_a_process_is_as_old_as_it_was_first_seen_whatever_its_links_did() -> None:
    clock = Clock()
    fleet = Fleet(clock=clock)
    crew = Crew(fleet, lambda: [], (), clock)
    fleet.join(worker("w0").info, NoDoor())
    crew.look()
    clock.now += 50
    fleet.leave("w0")
    fleet.join(worker("w0").info, NoDoor())
    clock.now += 5
    (row,) = crew.rows()
    assert (row.seen_s, row.linked_s) == (55, 5)


def test_waiting_requests_are_not_running_and_refusals_are_counted_apart() -> None:
    telemetry = Telemetry(CollectorRegistry(), Clock())
    subject = Subject("acme", "tiny", "chat_completions")
    for _ in range(3):
        telemetry.begin(subject)
    telemetry.begin(subject).end(502, "worker_lost")
    telemetry.count_request(Subject("acme", "", "chat_completions"), 429)
    telemetry.count_request(Subject("", "", "chat_completions"), 401)
    table = tenant_table(telemetry, {("acme", "tiny"): 1})
    assert table.count == 1
    assert table.rows == [TenantRow("acme", 2, 1, 0, 1, 1, 0, 0, 0)]


def test_prompts_of_tenants_that_were_forgotten_still_count() -> None:
    telemetry, recent = Telemetry(CollectorRegistry(), Clock()), Recent()
    for number in range(2 * MAX_TENANTS):
        recent.note(f"t{number}", Finding(Reason.TIMESTAMP), 1.0)
    assert len(recent.tenants()) == MAX_TENANTS
    assert misses(recent, telemetry, 2.0).reasons == [ReasonRow("timestamp", 2 * MAX_TENANTS, 0)]
