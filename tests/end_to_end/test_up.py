"""`pando up` when something happens under a live stream: a killed worker, and its own end."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.end_to_end.conftest import MODEL, Fleet


def stream(fleet: Fleet, max_tokens: int) -> Iterator[tuple[str, str]]:
    """The worker of the first event, and the data of each event as it comes."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Count from one to a hundred."}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream": True,
    }
    url = f"{fleet.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=120) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield answer.headers["x-pando-worker"], line.removeprefix("data: ")


def text_of(events: list[str]) -> str:
    assert events[-1] == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events[:-1]]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_a_killed_worker_takes_no_stream_with_it_and_comes_back(own_fleet: Fleet) -> None:
    whole = text_of([event for _, event in stream(own_fleet, 60)])
    before = own_fleet.worker_pids()
    events: list[str] = []
    killed = ""
    for name, event in stream(own_fleet, 60):
        events.append(event)
        if len(events) == 5:
            killed = name
            os.kill(before[name], signal.SIGKILL)
    assert text_of(events) == whole
    assert own_fleet.metric("pando_gateway_continuations_total") == 1

    def is_back() -> bool:
        return bool(httpx.get(f"{own_fleet.url}/ready").json()["workers"] == 2)

    own_fleet.eventually(is_back, 120)
    after = own_fleet.worker_pids()
    assert after[killed] != before[killed]
    assert {name: pid for name, pid in after.items() if name != killed} == {
        name: pid for name, pid in before.items() if name != killed
    }
    assert own_fleet.process.poll() is None


@pytest.mark.slow
def test_an_end_under_a_long_stream_is_told_to_the_client_and_logged(own_fleet: Fleet) -> None:
    events = []
    for _, event in stream(own_fleet, 4000):
        events.append(event)
        if len(events) == 5:
            own_fleet.process.send_signal(signal.SIGTERM)
    assert json.loads(events[-1])["error"]["code"] == "shutting_down"
    assert own_fleet.process.wait(60) == 0
    log = (own_fleet.logs / "gateway.log").read_text()
    assert re.search(r" request_ended .* status=503 outcome=shutting_down ", log)
    assert "Traceback" not in log
