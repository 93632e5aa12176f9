"""An answer told apart: the same parts however it is cut, and nothing lost of plain text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.parts.formats import FORMATS, TOLD, CallFormat, format_of
from worker.parts.splitter import Splitter, Thinking

ARGUMENTS = ["{}", '{"a": 1}', '{"text": "}] \\"{ \\\\", "b": [{"c": "ü\\n"}]}']


@dataclass
class Told:
    """What a whole answer was told apart into."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, tuple[str, str]] = field(default_factory=dict)
    steps: list[tuple[str, str, int]] = field(default_factory=list)

    def take(self, splitter: Splitter, piece: str | None) -> None:
        pieces = splitter.flush() if piece is None else splitter.push(piece)
        self.text += pieces.text
        self.reasoning += pieces.reasoning
        for delta in pieces.calls:
            name, arguments = self.calls.get(delta.index, ("", ""))
            self.calls[delta.index] = (name + delta.name, arguments + delta.arguments)
        self.steps.append((self.text, self.reasoning, sum(len(a) for _, a in self.calls.values())))


def told(thinking: Thinking, calls: CallFormat | None, *pieces: str) -> Told:
    splitter, found = Splitter(thinking, calls), Told()
    for piece in pieces:
        found.take(splitter, piece)
    found.take(splitter, None)
    return found


def written(calls: CallFormat, *given: tuple[str, str]) -> str:
    inner = calls.between.join(
        f"{calls.begin}{name}{calls.middle}{arguments}{calls.end}" for name, arguments in given
    )
    return calls.lead + inner + calls.close


@pytest.mark.parametrize("calls", FORMATS, ids=lambda one: one.name)
@pytest.mark.parametrize("front", ["", "Let me see.\n"])
def test_calls_come_out_as_they_were_written(calls: CallFormat, front: str) -> None:
    given = [("look", ARGUMENTS[1]), ("say.it-now", ARGUMENTS[2]), ("leave", ARGUMENTS[0])]
    found = told(Thinking.NONE, calls, ("" if calls.opens else front) + written(calls, *given))
    assert found.text == ("" if calls.opens else front.rstrip())
    assert list(found.calls.values()) == given
    assert all(json.loads(arguments) is not None for _, arguments in found.calls.values())


@pytest.mark.parametrize("thinking", Thinking)
def test_plain_text_stays_whole_whatever_it_looks_like(thinking: Thinking) -> None:
    for text in ("hello", "a < b, <tool", "<thin", "<tool_calls>", " x ", "[TOOL", '{"name": 1}'):
        for calls in (None, TOLD):
            if thinking is not Thinking.BEGUN:
                assert told(thinking, calls, *text).text == text


def test_reasoning_is_what_stands_in_its_marks() -> None:
    for thinking, answer in (
        (Thinking.OPEN, "<think>\nLet me\nsee. \n</think>\n\nYes </think>"),
        (Thinking.OPEN, "\n<think>Let me\nsee.</think>Yes </think>"),
        (Thinking.BEGUN, "\nLet me\nsee.</think> Yes </think>"),
    ):
        found = told(thinking, None, answer)
        assert (found.reasoning, found.text) == ("Let me\nsee.", "Yes </think>")
    cut = told(Thinking.BEGUN, None, "Let me </thi")
    assert (cut.reasoning, cut.text) == ("Let me </thi", "")


def test_a_model_that_does_not_think_may_write_the_mark() -> None:
    assert told(Thinking.NONE, None, "<think>x</think>").text == "<think>x</think>"
    assert told(Thinking.OPEN, None, "I <think>x</think>").text == "I <think>x</think>"


def test_a_call_in_a_thought_is_none() -> None:
    thought = written(TOLD, ("look", "{}"))
    found = told(Thinking.BEGUN, TOLD, f"{thought}</think>\n{written(TOLD, ('leave', '{}'))}")
    assert found.reasoning == thought
    assert found.calls == {0: ("leave", "{}")}


def test_what_was_cut_in_a_call_shows_as_far_as_it_came() -> None:
    whole = written(TOLD, ("look", '{"a": 1}'))
    named = whole.index('{"a"')
    assert told(Thinking.NONE, TOLD, whole[: named - 3]).calls == {}
    assert told(Thinking.NONE, TOLD, whole[: named + 3]).calls == {0: ("look", '{"a')}


@given(
    thinking=st.sampled_from(Thinking),
    calls=st.sampled_from((None, *FORMATS)),
    parts=st.lists(
        st.one_of(
            st.sampled_from(["<think>", "</think>", " ", "\n", "{", "}", '"', "<", "x"]),
            st.sampled_from([written(one, ("f", a)) for one in FORMATS for a in ARGUMENTS]),
            st.sampled_from(["<tool_call>\n", "[TOOL_CALLS]", '{"name": "', '", "arguments": ']),
        ),
        max_size=8,
    ),
    cuts=st.lists(st.integers(1, 12), min_size=1),
)
def test_what_comes_of_it_depends_on_the_characters_alone(
    thinking: Thinking, calls: CallFormat | None, parts: list[str], cuts: list[int]
) -> None:
    text = "".join(parts)
    by_one = Splitter(thinking, calls), Told()
    at = []
    for character in text:
        by_one[1].take(by_one[0], character)
        at.append(by_one[1].steps[-1])
    by_one[1].take(by_one[0], None)
    pieces, rest, turn = [], text, 0
    while rest:
        size = cuts[turn % len(cuts)]
        pieces.append(rest[:size])
        rest, turn = rest[size:], turn + 1
    splitter, found, length = Splitter(thinking, calls), Told(), 0
    for piece in pieces:
        found.take(splitter, piece)
        length += len(piece)
        assert found.steps[-1] == at[length - 1]
    found.take(splitter, None)
    assert (found.text, found.reasoning, found.calls) == (
        by_one[1].text,
        by_one[1].reasoning,
        by_one[1].calls,
    )


def test_a_template_shows_its_format() -> None:
    assert format_of("{{ tool }} <tool_call>").name == "hermes"
    assert (
        format_of('{"name": function name, "parameters": dictionary of argument').name == "llama3"
    )
    assert format_of("[TOOL_CALLS] [").name == "mistral"
    assert format_of("[TOOL_CALLS]name[ARGS]").name == "mistral_bare"
    assert format_of("no word of it") is TOLD
