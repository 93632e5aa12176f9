"""Outputs in OpenAI's form."""

from __future__ import annotations

import json
from typing import Any

from gateway.http.answer import Heading
from gateway.http.chat_answer import ChatAnswer, call_id
from gateway.http.completion_answer import CompletionAnswer, CompletionForm
from gateway.request import (
    FinishReason,
    Logprob,
    Output,
    PromptScore,
    TokenLogprobs,
    ToolCallDelta,
    Usage,
)
from tests.gateway.conftest import events_of

HEADING = Heading("id-1", 123, "tiny")


def parsed(events: bytes) -> list[dict[str, Any]]:
    return [json.loads(event) for event in events_of(events.decode()) if event != "[DONE]"]


def completion_answer(include_usage: bool = False) -> CompletionAnswer:
    return CompletionAnswer(HEADING, CompletionForm(include_usage=include_usage, scores=True))


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
    assert completion_answer().events([Output(0, "", b"\1\0\0\0")]) == b""


def test_usage_is_null_until_the_last_event_if_asked_for_and_absent_if_not() -> None:
    usage = Usage(5, 4, 3)
    for answer in (ChatAnswer(HEADING, True), completion_answer(include_usage=True)):
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
    for answer in (ChatAnswer(HEADING, False), completion_answer()):
        assert all("usage" not in event for event in parsed(answer.events([Output(0, "a")])))
        assert answer.tail(usage) == b"data: [DONE]\n\n"


def test_the_finish_stands_alone_in_chat_and_with_the_text_in_completions() -> None:
    last = Output(0, "end", b"", (), FinishReason.LENGTH)
    chat = parsed(ChatAnswer(HEADING, False).events([last]))
    assert [event["choices"][0]["finish_reason"] for event in chat] == [None, None, "length"]
    completion = parsed(completion_answer().events([last]))
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
    for answer in (ChatAnswer(HEADING, False), completion_answer()):
        one, second = json.loads(answer.whole(outputs, Usage()))["choices"]
        assert one["prompt_logprobs"] == [
            None,
            {"7": {"logprob": -1.5, "rank": 3, "decoded_token": " a"}},
            {"9": {"logprob": -9999.0, "rank": 40, "decoded_token": "\ufffd"}},
        ]
        assert "prompt_logprobs" not in second


def calling(*deltas: ToolCallDelta, choice: int = 0) -> list[Output]:
    return [Output(choice, "", tool_calls=(delta,)) for delta in deltas]


CALLS = [
    ToolCallDelta(0, "look", ""),
    ToolCallDelta(0, "", '{"a":'),
    ToolCallDelta(0, "", "1}"),
    ToolCallDelta(1, "leave", "{}"),
]
STOP = Output(0, "", finish_reason=FinishReason.STOP)


def test_calls_come_by_pieces_with_a_name_and_an_id_each_and_end_as_calls() -> None:
    answer = ChatAnswer(HEADING, include_usage=False)
    events = parsed(answer.events([Output(0, "", reasoning="Hm"), *calling(*CALLS), STOP]))
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[1] == {"reasoning_content": "Hm"}
    first, second, third, other = (delta["tool_calls"][0] for delta in deltas[2:6])
    assert first == {
        "index": 0,
        "id": call_id("id-1", 0, 0),
        "type": "function",
        "function": {"name": "look", "arguments": ""},
    }
    assert second == {"index": 0, "function": {"arguments": '{"a":'}}
    assert third["function"] == {"arguments": "1}"}
    assert (other["index"], other["function"]["name"]) == (1, "leave")
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_whole_answer_joins_the_pieces_of_each_call() -> None:
    outputs = [Output(0, "", reasoning="H"), Output(0, "", reasoning="m"), *calling(*CALLS), STOP]
    choice = json.loads(ChatAnswer(HEADING, False).whole(outputs, Usage()))["choices"][0]
    message = choice["message"]
    assert (message["content"], message["reasoning_content"]) == (None, "Hm")
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "look", "arguments": '{"a":1}'},
        {"name": "leave", "arguments": "{}"},
    ]
    assert choice["finish_reason"] == "tool_calls"


def test_a_call_that_the_client_named_ends_with_stop_and_a_cut_one_with_length() -> None:
    named = ChatAnswer(HEADING, False, "stop").whole([*calling(CALLS[3]), STOP], Usage())
    assert json.loads(named)["choices"][0]["finish_reason"] == "stop"
    cut = Output(0, "", finish_reason=FinishReason.LENGTH)
    events = parsed(ChatAnswer(HEADING, False).events([*calling(CALLS[0]), cut]))
    assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_ids_of_calls_are_nine_letters_and_digits_and_differ() -> None:
    ids = {
        call_id(answer, choice, index) for answer in "ab" for choice in (0, 1) for index in (0, 1)
    }
    assert len(ids) == 8
    assert all(len(one) == 9 and one.isalnum() and one.isascii() for one in ids)


def logprob(text: str, value: float) -> TokenLogprobs:
    return TokenLogprobs(Logprob(1, value, text.encode()))


ECHO = (
    PromptScore(3, b"The", 0.0, 0),
    PromptScore(7, b" cat", -1.5, 3, Logprob(8, -0.5, b" dog")),
)


def test_an_echo_stands_in_front_of_every_choice_with_its_logprobs() -> None:
    form = CompletionForm(logprobs=1, n=2, made=2, echo=True)
    outputs = [
        Output(1, " sat", logprobs=(logprob(" sat", -2.0),)),
        Output(
            0, " ran", logprobs=(logprob(" ran", -1.0),), prompt_scores=ECHO, prompt_text="The cat"
        ),
    ]
    choices = json.loads(CompletionAnswer(HEADING, form).whole(outputs, Usage()))["choices"]
    assert [choice["text"] for choice in choices] == ["The cat ran", "The cat sat"]
    assert choices[1]["logprobs"] == {
        "tokens": ["The", " cat", " sat"],
        "token_logprobs": [None, -1.5, -2.0],
        "top_logprobs": [None, {" cat": -1.5, " dog": -0.5}, {" sat": -2.0}],
        "text_offset": [0, 3, 7],
    }


def test_without_tokens_to_make_only_the_prompt_is_shown_and_paid() -> None:
    form = CompletionForm(logprobs=0, echo=True, prompt_only=True, include_usage=True)
    output = Output(
        0,
        "x",
        b"\1\0\0\0",
        (logprob("x", -1.0),),
        FinishReason.LENGTH,
        prompt_scores=ECHO,
        prompt_text="The cat",
    )
    whole = json.loads(CompletionAnswer(HEADING, form).whole([output], Usage(2, 0, 1)))
    choice = whole["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("The cat", "length")
    assert choice["logprobs"]["tokens"] == ["The", " cat"]
    assert whole["usage"]["completion_tokens"] == 0
    answer = CompletionAnswer(HEADING, form)
    streamed = parsed(answer.events([output]) + answer.tail(Usage(2, 0, 1)))
    assert streamed[0]["choices"][0]["text"] == "The cat"
    assert streamed[1]["usage"]["completion_tokens"] == 0


def test_the_best_of_each_prompt_are_those_with_the_highest_mean_logprob() -> None:
    form = CompletionForm(n=1, made=3)
    values = [-3.0, -1.0, -2.0, -1.0, -5.0, -4.0]
    outputs = [
        Output(index, f"{index}", logprobs=(logprob("x", value), logprob("y", value)))
        for index, value in enumerate(values)
    ]
    choices = json.loads(CompletionAnswer(HEADING, form).whole(outputs, Usage()))["choices"]
    assert [(one["index"], one["text"], one["logprobs"]) for one in choices] == [
        (0, "1", None),
        (1, "3", None),
    ]
