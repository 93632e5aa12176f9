"""Programs on the real model, in one request."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.end_to_end.conftest import MODEL, Fleet

Node = dict[str, Any]


def text(*parts: Any) -> Node:
    return {"op": "text", "text": list(parts)}


def gen(name: str, max_tokens: int = 12, **more: Any) -> Node:
    return {"op": "gen", "name": name, "max_tokens": max_tokens, **more}


def select(name: str, *choices: str, **more: Any) -> Node:
    return {"op": "select", "name": name, "choices": [[one] for one in choices], **more}


def message(role: str, *body: Node) -> Node:
    return {"op": "message", "role": role, "body": list(body)}


def asked(fleet: Fleet, *program: Node, **more: Any) -> dict[str, Any]:
    body = {"model": MODEL, "program": list(program), "sampling": {"temperature": 0}, **more}
    answer = httpx.post(f"{fleet.url}/v1/programs", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


LOG = "2026-01-05 12:00:01 ERROR disk full on /dev/sda1, writes are refused. " * 4


def test_a_text_goes_on_as_a_completion_does(fleet: Fleet) -> None:
    prompt = "The capital of France is"
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 12, "temperature": 0}
    whole = httpx.post(f"{fleet.url}/v1/completions", json=body, timeout=60).json()
    answer = asked(fleet, text(prompt), gen("a"), heal=False)
    assert answer["variables"]["a"] == whole["choices"][0]["text"]
    assert answer["text"] == prompt + answer["variables"]["a"]


def test_messages_go_on_as_a_chat_does(fleet: Fleet) -> None:
    messages: list[dict[str, str]] = [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    program = [message(one["role"], text(one["content"])) for one in messages]
    answers = []
    for turn in range(2):
        body = {"model": MODEL, "messages": messages, "max_tokens": 12, "temperature": 0}
        chat = httpx.post(f"{fleet.url}/v1/chat/completions", json=body, timeout=60).json()
        answers.append(chat["choices"][0]["message"]["content"])
        program.append(message("assistant", gen(f"a{turn}")))
        follow = {"role": "user", "content": "And of Spain?"}
        messages += [{"role": "assistant", "content": answers[-1]}, follow]
        program.append(message("user", text(follow["content"])))
    found = asked(fleet, *program[:-1])["variables"]
    assert [found["a0"], found["a1"]] == answers


def test_fields_of_a_log_line_by_enum_and_regex(fleet: Fleet) -> None:
    answer = asked(
        fleet,
        text(LOG, "\nThe level of the line above is "),
        select("level", "INFO", "WARNING", "ERROR"),
        text(". The time was "),
        gen("time", regex=r"\d\d:\d\d:\d\d"),
        text(". The device is "),
        gen("device", stop=["\n", "."], max_tokens=8),
    )
    found = answer["variables"]
    assert found["level"] in ("INFO", "WARNING", "ERROR")
    assert len(found["time"]) == 8
    level, time, device = answer["nodes"]
    assert level["op"] == "select"
    assert len(level["scores"]) == 3
    # Each step computes what is its own.
    assert time["prompt_tokens"] - time["cached_tokens"] < 16
    assert device["prompt_tokens"] - device["cached_tokens"] < 16


def test_branches_share_what_is_in_front_of_them_and_are_joined_by_their_values(
    fleet: Fleet,
) -> None:
    branches = [[text(f"\nIdea {n}: "), gen(f"idea{n}", 8, stop=["\n"])] for n in range(4)]
    program = [
        text("Ways to save water in a garden. " * 20),
        {"op": "fork", "branches": branches},
        text("\nAll:", {"var": "idea0"}, ";", {"var": "idea3"}, "\nBest: "),
        select("best", "the first", "the last"),
    ]
    answer = asked(fleet, *program)
    found = answer["variables"]
    assert found.keys() == {"idea0", "idea1", "idea2", "idea3", "best"}
    assert f"{found['idea0']};{found['idea3']}" in answer["text"]
    usage = answer["usage"]
    computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    assert computed < 400
    assert found == asked(fleet, *program)["variables"]


def test_a_stream_and_a_session_give_the_same(fleet: Fleet) -> None:
    program = [text("One, two, three,"), gen("a", 6), text(" and then"), gen("b", 6)]
    whole = asked(fleet, *program)["variables"]
    body = {"model": MODEL, "program": program, "sampling": {"temperature": 0}, "stream": True}
    pieces: dict[str, str] = {}
    with httpx.stream("POST", f"{fleet.url}/v1/programs", json=body, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                if event["event"] == "delta":
                    pieces[event["name"]] = pieces.get(event["name"], "") + event["text"]
    assert pieces == whole
    first = asked(fleet, *program[:2], session={"ttl_s": 30})
    second = asked(fleet, *program[2:], session={"id": first["session"]["id"], "ttl_s": 30})
    assert {**first["variables"], **second["variables"]} == whole
    again = httpx.post(
        f"{fleet.url}/v1/programs",
        json={"model": MODEL, "program": program, "session": {"id": "worker-0~nothing"}},
    )
    assert (again.status_code, again.json()["error"]["code"]) == (404, "session_lost")


@pytest.mark.parametrize(
    "method",
    [
        "token_length_normalized",
        "greedy_token_selection",
        "unconditional_likelihood_normalized",
    ],
)
def test_a_select_takes_the_likeliest(fleet: Fleet, method: str) -> None:
    answer = asked(
        fleet,
        text("The capital of France is"),
        select("city", " Paris", " Berlin", " Madrid", method=method),
    )
    assert answer["variables"]["city"] == " Paris"


def test_nothing_is_left(fleet: Fleet) -> None:
    fleet.eventually(lambda: fleet.metric("pando_gateway_requests_in_flight") == 0)
