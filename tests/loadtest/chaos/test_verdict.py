from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from loadtest.chaos.answers import Told
from loadtest.chaos.asks import Ask, asks
from loadtest.chaos.verdict import Circumstances, Outcome, Span, judge

ASK = Ask("a chat", "/v1/chat/completions", {})
AROUND = Circumstances(Span("gateway-0", 10, 12), limited=False, faults=(), outages=())
CHOICE = {"index": 0, "message": {"content": "oak"}, "finish_reason": "stop"}
BUSY = {"message": "Later.", "type": "server_error", "code": "no_worker", "param": None}


def answer(*chunks: Mapping[str, Any], done: bool = True) -> Told:
    told = Told(status=200, done=done)
    for chunk in chunks:
        told.piece(dict(chunk))
    return told


def refusal(status: int, **headers: str) -> Told:
    return Told(status=status, headers=headers, done=True, error=json.dumps(BUSY))


RIGHT = answer({"choices": [CHOICE], "usage": {"completion_tokens": 1}})
AFTER = {"retry-after": "1"}


def outcome(told: Told, around: Circumstances = AROUND) -> Outcome:
    return judge(ASK, told, RIGHT.body, around).outcome


def test_an_answer_is_right_when_it_says_the_same_to_its_end() -> None:
    assert outcome(RIGHT) is Outcome.RIGHT
    other = {**CHOICE, "message": {"content": "elm"}}
    assert outcome(answer({"choices": [other], "usage": {"completion_tokens": 1}})) is Outcome.WRONG
    more = answer({"choices": [CHOICE], "usage": {"completion_tokens": 2}})
    assert outcome(more) is Outcome.WRONG


def test_a_stream_without_an_end_is_lost() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "oak"}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"completion_tokens": 1}}
    assert outcome(answer(chunk, usage)) is Outcome.RIGHT
    assert outcome(answer(chunk, usage, done=False)) is Outcome.LOST
    open_end = {"choices": [{"index": 0, "delta": {"content": "oak"}, "finish_reason": None}]}
    assert outcome(answer(open_end, usage)) is Outcome.LOST
    assert outcome(answer(chunk, {"error": BUSY})) is Outcome.LOST


def test_a_broken_connection_is_cut_only_while_its_own_gateway_is_gone() -> None:
    told = Told(broken=True, error="ReadError")
    assert outcome(told) is Outcome.LOST

    def at(what: str, began: float, ended: float) -> Outcome:
        outages = (Span(what, began, ended),)
        return outcome(told, Circumstances(AROUND.span, False, (), outages))

    assert at("gateway-0", 11, 30) is Outcome.CUT
    assert at("gateway-1", 11, 30) is Outcome.LOST
    assert at("gateway-0", 13, 30) is Outcome.LOST


def test_a_refusal_needs_its_form_and_its_reason() -> None:
    faulty = Circumstances(AROUND.span, False, (Span("worker killed", 1, 8),), ())
    assert outcome(refusal(503, **AFTER), faulty) is Outcome.REFUSED
    assert outcome(refusal(503), faulty) is Outcome.LOST
    assert outcome(refusal(503, **AFTER)) is Outcome.LOST
    limited = Circumstances(AROUND.span, True, (), ())
    assert outcome(refusal(429, **AFTER), limited) is Outcome.LIMITED
    assert outcome(refusal(429, **AFTER)) is Outcome.LOST
    for said in ("no end within 150 s", "[]", '"later"'):
        told = Told(status=503, headers=AFTER, done=True, error=said)
        assert outcome(told, faulty) is Outcome.LOST
    assert outcome(Told(status=500, done=True, error=json.dumps(BUSY)), faulty) is Outcome.LOST


def test_calls_and_logprobs_come_together_piece_by_piece() -> None:
    def call(**function: str) -> dict[str, object]:
        return {"tool_calls": [{"index": 0, "function": function}], "content": None}

    pieces = [
        {"index": 0, "delta": call(name="find", arguments="{"), "finish_reason": None},
        {"index": 0, "delta": call(arguments="}"), "finish_reason": "tool_calls"},
    ]
    logprobs = {"content": [{"logprob": -1.5}]}
    streamed = answer(*({"choices": [{**piece, "logprobs": logprobs}]} for piece in pieces))
    assert streamed.choices["0"]["calls"] == {"0": ["find", "{}"]}
    assert streamed.choices["0"]["logprobs"] == [-1.5, -1.5]


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_asked_is_drawn_by_the_seed_alone(seed: int) -> None:
    once, again = asks("small", 24, seed), asks("small", 24, seed)
    assert once == again
    assert once != asks("small", 24, seed + 1)
    assert len({ask.kind for ask in once}) == 12
