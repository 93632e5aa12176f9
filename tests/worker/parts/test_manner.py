"""What a model makes of tools and reasoning, and what a template without them is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from worker.errors import InvalidRequest
from worker.parts.manner import Manner
from worker.parts.splitter import Splitter, Thinking
from worker.parts.telling import told
from worker.submission import ChatInput, Constraint, Language, ToolChoice, ToolMode

LOOK = {"type": "function", "function": {"name": "look", "strict": True, "parameters": {}}}
KNOWS = Manner.of("{% if tools %}<tool_call>", {})
PLAIN = Manner.of("{{ messages }}", {})
USER = {"role": "user", "content": "Hi"}
CALLED: dict[str, Any] = {
    "role": "assistant",
    "content": "So:",
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}},
        {"id": "2", "type": "function", "function": {"name": "leave", "arguments": "{}"}},
    ],
}


def chat(mode: ToolMode = ToolMode.AUTO, name: str = "", **more: Any) -> ChatInput:
    return ChatInput(b"", b"x", b"", ToolChoice(mode, name), **more)


def test_a_template_that_knows_tools_is_given_them_as_they_are_but_for_what_is_ours() -> None:
    asked = KNOWS.asked(chat(), [USER], [LOOK])
    assert asked.messages == [USER]
    assert asked.tools == [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    assert asked.callable is not None


def test_a_model_that_may_not_call_sees_the_same_prompt() -> None:
    never, may = (
        KNOWS.asked(chat(mode), [USER], [LOOK]) for mode in (ToolMode.NONE, ToolMode.AUTO)
    )
    assert (never.messages, never.tools) == (may.messages, may.tools)
    assert never.callable is None
    assert KNOWS.parted(chat(ToolMode.NONE), never, "", None) == (
        KNOWS.parted(chat(), never, "", None)
    )


def test_a_template_that_knows_none_is_told_in_words_and_counts_as_many_messages() -> None:
    for first in (
        USER,
        {"role": "system", "content": "Be kind"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ):
        asked = PLAIN.asked(
            chat(),
            [first, CALLED, {"role": "tool", "tool_call_id": "1", "content": "seen"}],
            [LOOK],
        )
        assert asked.tools == []
        assert [one["role"] for one in asked.messages] == [first["role"], "assistant", "user"]
        assert '"name": "look"' in asked.messages[0]["content"]
        assert "seen" in asked.messages[2]["content"]
        assert "strict" not in asked.messages[0]["content"]


def test_a_history_of_calls_is_written_as_they_are_read() -> None:
    shown = told([USER, CALLED], [])[1]["content"]
    pieces = Splitter(Thinking.NONE, PLAIN.speech.calls).push(shown)
    assert pieces.text == "So:"
    names = [delta.name for delta in pieces.calls if delta.name]
    assert names == ["look", "leave"]
    arguments = "".join(delta.arguments for delta in pieces.calls)
    assert arguments == '{"a": 1}{}'


@pytest.mark.parametrize(
    "tool",
    [
        7,
        {},
        {"function": {}},
        {"function": {"name": 1}},
        {"function": {"name": "f", "parameters": 1}},
    ],
)
def test_a_tool_that_is_none_is_refused(tool: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        KNOWS.asked(chat(), [USER], [tool])
    assert caught.value.param == "tools"


def test_a_tool_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        KNOWS.asked(chat(ToolMode.REQUIRED, "jump"), [USER], [LOOK])
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("template", "tail", "thinking"),
    [
        ("no word", "<think>", Thinking.NONE),
        ("</think>", "assistant\n<think>\n", Thinking.BEGUN),
        ("</think>", "assistant\n", Thinking.OPEN),
        ("</think>", "<think>\n\n</think>\n\n", Thinking.NONE),
    ],
)
def test_whether_an_answer_thinks_is_told_by_template_and_prompt(
    template: str, tail: str, thinking: Thinking
) -> None:
    manner = Manner.of(template, {})
    asked = manner.asked(ChatInput(b""), [USER], [])
    parting, language = manner.parted(ChatInput(b""), asked, tail, None)
    assert (parting.thinking, language) == (thinking, None)
    kept, _ = manner.parted(ChatInput(b"", keep_reasoning=True), asked, tail, None)
    assert kept.splitter() is None


def test_special_marks_are_shown_where_they_are_told_apart_and_nowhere_else() -> None:
    marked = Manner.of("[TOOL_CALLS] tools </think>", {"[TOOL_CALLS]": 5, "</think>": 6, "<s>": 1})
    asked = marked.asked(chat(), [USER], [LOOK])
    parting, language = marked.parted(chat(), asked, "</think>", None)
    assert parting.shown == {5, 6}
    assert language is not None
    assert language.ids == {5}
    plain = marked.parted(
        ChatInput(b""), marked.asked(ChatInput(b""), [USER], []), "</think>", None
    )
    assert plain[0].shown == frozenset()


def test_a_constraint_alone_stays_as_it_was() -> None:
    schema = Constraint(Language.JSON_SCHEMA, json.dumps({"type": "object"}))
    asked = PLAIN.asked(ChatInput(b""), [USER], [])
    assert PLAIN.parted(ChatInput(b""), asked, "", schema)[1] is schema
