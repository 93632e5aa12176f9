"""A worker that lies or is broken: it harms what it was given, and nobody else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fake_worker import Line, Script, endless

BODY = {"model": "tiny", "prompt": "Hi", "max_tokens": 4}
NAMES = {
    "a header's end": "w0\r\nset-cookie: a=b",
    "a line's end": "w0\n",
    "spaces": "w0 up",
    "none": "",
    "no end": "w" * 200,
    "a path": "../w0",
    "another alphabet": "wörker",
}


async def test_a_worker_whose_name_is_none_is_not_linked(
    start_worker: StartWorker, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway")
    workers = [await start_worker(name=name) for name in NAMES.values()]
    live = await serve(*workers)
    for worker in workers:
        broken = {"worker": worker.address, "reason": "name"}
        await live.until(lambda broken=broken: live.metric("link_breaks_total", **broken) > 0)  # type: ignore[misc]
    assert live.gateway.fleet.workers() == ()
    assert all("\n" not in record.getMessage() for record in caplog.records)


def answers_for_all(event: Callable[[Line, int], None]) -> Script:
    """A script that speaks for every request that may run anywhere."""

    async def script(submit: pb.Submit, line: Line) -> None:
        for request_id in range(64):
            event(line, request_id)
        await asyncio.Event().wait()

    return script


FORGERIES: dict[str, Callable[[Line, int], None]] = {
    "ends": lambda line, request_id: line.done(request_id),
    "failures": lambda line, request_id: line.fail(request_id, pb.INTERNAL, "gone"),
    "words": lambda line, request_id: line.text(request_id, "forged"),
}


@pytest.mark.parametrize("event", FORGERIES.values(), ids=list(FORGERIES))
async def test_a_worker_can_speak_for_no_request_but_its_own(
    start_worker: StartWorker, serve_linked: Serve, event: Callable[[Line, int], None]
) -> None:
    honest = await start_worker(name="honest", model="good", script=endless)
    hostile = await start_worker(name="hostile", model="bad", script=answers_for_all(event))
    live = await serve_linked(honest, hostile)
    asked = {**BODY, "model": "good", "stream": True}
    async with live.http.stream("POST", "/v1/completions", json=asked) as stream:
        lines = stream.aiter_lines()
        await anext(lines)
        bad = asyncio.create_task(
            live.http.post("/v1/completions", json={**BODY, "model": "bad"}, timeout=60)
        )
        await live.until(lambda: bool(hostile.submits))
        seen = [await anext(lines) for _ in range(40)]
        bad.cancel()
    words = [line for line in seen if line.startswith("data:")]
    assert words
    assert all('" and"' in line for line in words), "only its own worker's words"
    await live.until(lambda: live.gateway.fleet.in_flight == 0)
    live.assert_nothing_is_left()


def odd_choice(line: Line, request_id: int) -> None:
    line.text(request_id, "secret text", choice=7)


def odd_ids(line: Line, request_id: int) -> None:
    line.step(outputs=[pb.Output(request_id=request_id, text="secret text", token_ids=b"\1\2\3")])


def odd_event(line: Line, request_id: int) -> None:
    event = pb.CacheEvent(digest=b"secret text", num_tokens=1)
    event.kind = 77  # type: ignore[assignment]
    line.step(cache_events=[event])


def odd_failure(line: Line, request_id: int) -> None:
    failed = pb.Failed(request_id=request_id, message="secret text", param="secret text")
    failed.code = 77  # type: ignore[assignment]
    line.step(failed=[failed])


async def test_nonsense_of_a_worker_ends_its_requests_and_no_gateway(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    said = iter((odd_choice, odd_ids, odd_failure, odd_event))

    async def script(submit: pb.Submit, line: Line) -> None:
        next(said, odd_choice)(line, submit.request_id)
        line.done(submit.request_id)

    worker = await start_worker(script=script)
    other = await start_worker(name="other", model="good")
    live = await serve_linked(worker, other)
    for _ in range(4):
        response = await live.http.post("/v1/completions", json=BODY)
        assert response.status_code < 500 or "secret" not in response.text
        fine = await live.http.post("/v1/completions", json={**BODY, "model": "good"})
        assert fine.status_code == 200
    assert live.metric("link_breaks_total", worker="w0") or live.metric("link_breaks_total")
    live.assert_nothing_is_left()


def linked(live: Live) -> set[str]:
    return {worker.name for worker in live.gateway.fleet.workers()}


async def test_a_worker_takes_no_name_from_one_that_is_linked(
    start_worker: StartWorker, serve: Serve
) -> None:
    honest = await start_worker(name="w0", model="good")
    hostile = await start_worker(name="w0", model="bad")
    live = await serve(honest)
    await live.until_linked("w0")
    other = await serve(honest, hostile)
    await other.until(lambda: other.metric("link_breaks_total", reason="name") > 0)
    assert linked(other) == {"w0"}
