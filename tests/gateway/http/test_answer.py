"""Outputs in OpenAI's form."""

from __future__ import annotations

import json
from typing import Any

from gateway.http.answer import ChatAnswer, CompletionAnswer, Heading
from gateway.request import FinishReason, Output, PromptScore, Usage
from tests.gateway.conftest import events_of

HEADING = Heading("id-1", 123, "tiny")


def parsed(events: bytes) -> list[dict[str, Any]]:
    return [json.loads(event) for event in events_of(events.decode()) if event != "[DONE]"]


def test_the_role_is_told_once_per_choice() -> None:
    answer = ChatAnswer(HEADING, include_usage=False)
    events = parsed(answer.events([Output(0, "a"), Output(1, "b"), Output(0, "c")]))
    assert [(e["choices"][0]["index"], e["choices"][0]["delta"]) for e in events] == [
        (0, {"role": "assistant", "content": ""}),
        (0, {"content": "a"}),
        (1, {"role": "assistant", "content": ""}),
        (1, {"content": "b"}),
        (0, {"content": "c"}),
    ]


def test_tokens_without_text_make_no_event_after_the_first() -> None:
    answer = ChatAnswer(HEADING, include_usage=False)
    answer.events([Output(0, "a")])
    assert answer.events([Output(0, "", b"\1\0\0\0")]) == b""
    assert CompletionAnswer(HEADING, False, False).events([Output(0, "", b"\1\0\0\0")]) == b""


def test_usage_is_null_until_the_last_event_if_asked_for_and_absent_if_not() -> None:
    usage = Usage(5, 4, 3)
    for answer in (ChatAnswer(HEADING, True), CompletionAnswer(HEADING, True, False)):
        first = parsed(answer.events([Output(0, "a")]))
        last = parsed(answer.tail(usage))
        assert all(event["usage"] is None for event in first)
        assert last[0]["choices"] == []
        assert last[0]["usage"] == {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 4},
        }
    for answer in (ChatAnswer(HEADING, False), CompletionAnswer(HEADING, False, False)):
        assert all("usage" not in event for event in parsed(answer.events([Output(0, "a")])))
        assert answer.tail(usage) == b"data: [DONE]\n\n"


def test_the_finish_stands_alone_in_chat_and_with_the_text_in_completions() -> None:
    last = Output(0, "end", b"", (), FinishReason.LENGTH)
    chat = parsed(ChatAnswer(HEADING, False).events([last]))
    assert [event["choices"][0]["finish_reason"] for event in chat] == [None, None, "length"]
    completion = parsed(CompletionAnswer(HEADING, False, False).events([last]))
    assert completion[0]["choices"][0] == {
        "index": 0,
        "text": "end",
        "logprobs": None,
        "finish_reason": "length",
    }


def test_a_whole_answer_has_its_choices_in_order() -> None:
    outputs = [Output(1, "x"), Output(0, "a"), Output(1, "y"), Output(0, "b")]
    whole = json.loads(ChatAnswer(HEADING, False).whole(outputs, Usage()))
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["ab", "xy"]


def test_text_of_any_kind_stays_in_its_event() -> None:
    text = 'line\n\ndata: [DONE]\n\n"quoted" \u2028 \U0001f600'
    event = ChatAnswer(HEADING, False).events([Output(0, text)])
    assert parsed(event)[1]["choices"][0]["delta"]["content"] == text


def test_a_prompts_logprobs_stand_with_the_choice_that_brought_them() -> None:
    first = PromptScore(3, b"The", 0.0, 0)
    scores = (first, PromptScore(7, b" a", -1.5, 3), PromptScore(9, b"\xff", float("-inf"), 40))
    outputs = [Output(0, "x", prompt_scores=scores), Output(1, "y")]
    for answer in (ChatAnswer(HEADING, False), CompletionAnswer(HEADING, False, False)):
        one, second = json.loads(answer.whole(outputs, Usage()))["choices"]
        assert one["prompt_logprobs"] == [
            None,
            {"7": {"logprob": -1.5, "rank": 3, "decoded_token": " a"}},
            {"9": {"logprob": -9999.0, "rank": 40, "decoded_token": "\ufffd"}},
        ]
        assert "prompt_logprobs" not in second
