from __future__ import annotations

import json
import os
import signal

import httpx

from tests.end_to_end.conftest import MODEL, Fleet, Parts


def stream_until_killed(url: str, kill: object) -> tuple[str, list[str]]:
    """Streams a long completion and calls kill(worker) after a few events; returns the events."""
    assert callable(kill)
    body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 2000, "stream": True}
    body |= {"ignore_eos": True}
    events: list[str] = []
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as answer:
        worker = answer.headers["x-pando-worker"]
        for line in answer.iter_lines():
            if line.startswith("data: "):
                events.append(line.removeprefix("data: "))
            if len(events) == 5 and line:
                kill(worker)
    return worker, events


def test_a_killed_worker_ends_its_streams_with_an_error_and_the_next_request_goes_elsewhere(
    parts: Parts,
) -> None:
    dead, events = stream_until_killed(parts.url, lambda worker: parts.workers[worker].kill())
    assert "[DONE]" not in events
    assert json.loads(events[-1])["error"]["code"] == "worker_lost"
    for _ in range(3):
        body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 4}
        answer = httpx.post(f"{parts.url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 200
        assert answer.headers["x-pando-worker"] != dead


def test_a_worker_that_is_told_to_leave_finishes_its_stream_and_takes_nothing_new(
    parts: Parts,
) -> None:
    def leave(worker: str) -> None:
        parts.workers[worker].terminate()

    body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 40, "stream": True}
    body |= {"ignore_eos": True}
    with httpx.stream("POST", f"{parts.url}/v1/completions", json=body, timeout=60) as answer:
        worker = answer.headers["x-pando-worker"]
        lines = answer.iter_lines()
        next(lines)
        leave(worker)
        rest = [line for line in lines if line.startswith("data: ")]
    assert rest[-1] == "data: [DONE]"
    assert parts.workers[worker].wait(30) == 0
    body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 4}
    after = httpx.post(f"{parts.url}/v1/completions", json=body, timeout=60)
    assert after.status_code == 200
    assert after.headers["x-pando-worker"] != worker


def test_pando_up_stops_everything_when_a_worker_dies(own_fleet: Fleet) -> None:
    _, events = stream_until_killed(
        own_fleet.url, lambda worker: os.kill(own_fleet.worker_pids()[worker], signal.SIGKILL)
    )
    assert "[DONE]" not in events
    assert own_fleet.process.wait(60) != 0
