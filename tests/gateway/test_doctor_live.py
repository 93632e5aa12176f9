"""Why a prompt missed, as clients, metrics and log are told: a live gateway, scripted workers."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from gateway.config import DoctorConfig
from gateway.doctor.finding import Reason
from gateway.tenancy.keys import digest_of
from gateway.tenant_config import TenantConfig
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fake_worker import FakeWorker, Line, Script, words

KEYS = {name: {"authorization": f"Bearer pnd-{name}"} for name in ("acme", "quiet")}
TENANTS = (
    TenantConfig("acme", (digest_of("pnd-acme"),), debug=True),
    TenantConfig("quiet", (digest_of("pnd-quiet"),)),
)
LONG = " ".join(f"Sentence {word} says what the agent must do." for word in "abcdefghijklmnop")


def telling(prompt_tokens: int, cached_tokens: int) -> Script:
    """A worker that says with its first output what came from its cache."""

    async def script(submit: pb.Submit, line: Line) -> None:
        first = pb.Output(
            request_id=submit.request_id,
            text="Hello",
            token_ids=b"\1\0\0\0",
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
        )
        line.step(outputs=[first])
        last = pb.Output(request_id=submit.request_id, finish_reason=pb.STOP)
        line.step(outputs=[last])
        line.done(submit.request_id, 1, prompt_tokens, cached_tokens)

    return script


async def ask(live: Live, turn: int, who: str = "acme", **more: Any) -> httpx.Response:
    messages = [
        {"role": "system", "content": f"Turn {turn}. {LONG}"},
        {"role": "user", "content": "What now?"},
    ]
    body = {"model": "tiny", "messages": messages, **more}
    answer = await live.http.post("/v1/chat/completions", json=body, headers=KEYS[who])
    assert answer.status_code == 200
    return answer


async def started(
    start_worker: StartWorker, serve: Serve, script: Script, **settings: Any
) -> tuple[Live, FakeWorker]:
    worker = await start_worker(script=script)
    live = await serve(worker, **{"tenants": TENANTS, **settings})
    await live.until_linked("w0")
    return live, worker


@pytest.mark.parametrize("stream", [False, True])
async def test_the_header_says_why_also_of_a_stream(
    start_worker: StartWorker, serve: Serve, stream: bool
) -> None:
    live, _ = await started(start_worker, serve, telling(200, 0))
    first, second = [await ask(live, turn, stream=stream) for turn in (1, 2)]
    assert first.headers["x-pando-cache"] == "hit=0/200, reason=never_seen, lost=200"
    told = second.headers["x-pando-cache"]
    assert told.startswith("hit=0/200, reason=counter, at=messages[0]:5, lost=")
    assert live.metric("cache_reasons_total", tenant="acme", reason="counter") == 1
    assert live.metric("uncached_tokens_total", model="tiny", reason="counter") == 200
    assert live.metric("doctor_examinations_total", outcome="made") == 2


async def test_who_may_not_see_the_route_sees_no_cause_and_is_counted(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, _ = await started(start_worker, serve, telling(200, 0))
    for turn in (1, 2):
        assert "x-pando-cache" not in (await ask(live, turn, "quiet")).headers
    assert live.metric("cache_reasons_total", tenant="quiet", reason="counter") == 1
    doctor = live.gateway.doctor
    assert doctor is not None
    assert [one.finding.reason for one in doctor.recent.findings("quiet")] == [
        Reason.COUNTER,
        Reason.NEVER_SEEN,
    ]


async def test_the_log_has_the_reason_and_no_text(
    start_worker: StartWorker, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    live, _ = await started(start_worker, serve, telling(200, 0))
    with caplog.at_level(logging.INFO, "gateway"):
        for turn in (1, 2):
            await ask(live, turn)
        await live.until(lambda: caplog.text.count("request_ended") == 2)
    assert "cache_reason=never_seen" in caplog.text
    assert "cache_reason=counter" in caplog.text
    assert "Turn" not in caplog.text


async def test_text_is_in_the_log_where_the_operator_says_so(
    start_worker: StartWorker, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    doctor = DoctorConfig(show_text=True)
    live, _ = await started(start_worker, serve, telling(200, 0), doctor=doctor)
    with caplog.at_level(logging.INFO, "gateway"):
        for turn in (1, 2):
            await ask(live, turn)
    assert "cache_finding tenant=acme reason=counter at=messages[0]:5" in caplog.text
    assert "Turn 2." in caplog.text


async def test_a_worker_that_tells_only_in_the_end_is_heard_then(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, _ = await started(start_worker, serve, words)
    whole, streamed = await ask(live, 1), await ask(live, 1, stream=True)
    assert whole.headers["x-pando-cache"].startswith("hit=3/7, reason=")
    assert "x-pando-cache" not in streamed.headers
    await live.until(lambda: live.metric("cache_reasons_total") == 2)


async def test_a_request_goes_on_when_the_doctor_fails_and_that_is_logged_once(
    start_worker: StartWorker, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    live, _ = await started(start_worker, serve, telling(200, 0))
    doctor = live.gateway.doctor
    assert doctor is not None
    del doctor._history
    for turn in (1, 2, 3):
        answer = await ask(live, turn)
        assert answer.json()["choices"][0]["message"]["content"] == "Hello"
        assert "x-pando-cache" not in answer.headers
    doctor.answered = None  # type: ignore[assignment]
    assert (await ask(live, 3)).status_code == 200
    assert caplog.text.count("doctor_failed") == 1
    assert live.metric("doctor_examinations_total", outcome="failed") >= 3
    live.assert_nothing_is_left()


async def test_it_can_be_turned_off(start_worker: StartWorker, serve: Serve) -> None:
    live, _ = await started(
        start_worker, serve, telling(200, 0), doctor=DoctorConfig(enabled=False)
    )
    assert "x-pando-cache" not in (await ask(live, 1)).headers
    assert live.gateway.doctor is None
    assert live.metric("cache_reasons_total") == 0


async def test_an_eviction_is_told_with_whose_need_it_was(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, worker = await started(start_worker, serve, telling(200, 0))
    await ask(live, 1)
    digest = worker.submits[0].boundaries[0].digest
    for kind in (pb.CacheEvent.STORED, pb.CacheEvent.EVICTED):
        event = pb.CacheEvent(kind=kind, digest=digest, num_tokens=150, by_another=True)
        worker.lines[0].step(cache_events=[event])
    await live.until(lambda: live.metric("cache_events_total", kind="evicted") == 1)
    told = (await ask(live, 1)).headers["x-pando-cache"]
    assert "reason=evicted, detail=by_another" in told


async def test_a_worker_that_began_anew_has_lost_its_cache(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, worker = await started(start_worker, serve, telling(200, 0))
    await ask(live, 1)
    await worker.stop()
    await live.until(lambda: not live.gateway.fleet.workers())
    await start_worker(port=worker.port, incarnation="second", script=telling(200, 0))
    await live.until_linked("w0")
    assert "reason=restarted, detail=began_anew" in (await ask(live, 1)).headers["x-pando-cache"]


async def test_of_several_prompts_the_header_tells_of_the_first_that_had_output(
    start_worker: StartWorker, serve: Serve
) -> None:
    live, _ = await started(start_worker, serve, telling(200, 0))
    body = {"model": "tiny", "prompt": [f"It is 12:0{n}. {LONG}" for n in range(3)]}
    answer = await live.http.post("/v1/completions", json=body, headers=KEYS["acme"])
    assert "reason=" in answer.headers["x-pando-cache"]
    assert live.metric("cache_reasons_total", reason="timestamp") == 2
    assert live.metric("cache_reasons_total") == 3
