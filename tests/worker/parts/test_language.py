"""What a choice may say with tools, a constraint and reasoning: tried text by text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worker.loaded import tokenizer_of
from worker.errors import InvalidRequest
from worker.grammar.compiler import Compiler
from worker.parts.formats import FORMATS, TOLD, CallFormat
from worker.parts.language import Speech, Tools, language_of
from worker.parts.splitter import Splitter, Thinking
from worker.submission import Constraint, Language, ToolChoice, ToolMode
from worker.text.tokenizer import Tokenizer

LOOK = {
    "name": "look",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    },
}
LEAVE = {"name": "leave"}
SCHEMA = Constraint(Language.JSON_SCHEMA, '{"type":"object"}')
AUTO, REQUIRED = ToolChoice(), ToolChoice(ToolMode.REQUIRED)


class Tongue:
    """Tells whether a whole text may be said, by the real tokenizer's grammar."""

    def __init__(self, tokenizer: Tokenizer, special: dict[str, int] | None = None) -> None:
        self.tokenizer = tokenizer
        self.special = special or {}
        self.compiler = Compiler(tokenizer)

    def may_say(
        self,
        text: str,
        choice: ToolChoice | None,
        *,
        calls: CallFormat = TOLD,
        constraint: Constraint | None = None,
        thinking: Thinking = Thinking.NONE,
        functions: tuple[dict[str, Any], ...] = (LOOK, LEAVE),
    ) -> bool:
        tools = None if choice is None else Tools(functions, choice)
        asked = language_of(Speech(calls, self.special), tools, constraint, thinking)
        assert asked is not None
        matcher = self.compiler.compile(asked).base.deep_copy()
        ids = self.ids(text)
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    def ids(self, text: str) -> list[int]:
        found: list[int] = []
        while text:
            places = [(text.index(mark), mark) for mark in self.special if mark in text]
            place, mark = min(places, default=(len(text), ""))
            found += self.tokenizer.encode_literal(text[:place])
            found += [self.special[mark]] if mark else []
            text = text[place + len(mark) :]
        return found


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def tongue(tokenizer: Tokenizer) -> Tongue:
    return Tongue(tokenizer)


@pytest.fixture(scope="module")
def special(tokenizer: Tokenizer) -> Tongue:
    """A model whose marks are tokens of their own."""
    ids = sorted(tokenizer.special_ids - tokenizer.eos_ids)
    marks = ("[TOOL_CALLS]", "[ARGS]", "<think>", "</think>")
    return Tongue(tokenizer, dict(zip(marks, ids, strict=False)))


def call(calls: CallFormat, *given: tuple[str, str]) -> str:
    inner = calls.between.join(
        f"{calls.begin}{name}{calls.middle}{arguments}{calls.end}" for name, arguments in given
    )
    return calls.lead + inner + calls.close


ONE, OTHER = ("look", '{"a": 1}'), ("leave", "{}")


@pytest.mark.parametrize("calls", FORMATS, ids=lambda one: one.name)
@pytest.mark.parametrize("marked", [False, True])
def test_a_model_may_answer_or_call_and_every_call_is_one_of_a_tool(
    tongue: Tongue, special: Tongue, calls: CallFormat, marked: bool
) -> None:
    it = special if marked else tongue
    for said in (call(calls, ONE), call(calls, ONE, OTHER, ONE), "just text", ""):
        assert it.may_say(said, AUTO, calls=calls), said
    if not calls.opens:
        assert it.may_say("First:\n" + call(calls, ONE), AUTO, calls=calls)
    wrong = [("jump", "{}"), ("look", "{}"), ("look", '{"a": "x"}'), ("leave", '{"b": 1}')]
    for given in wrong:
        assert not it.may_say(call(calls, given), AUTO, calls=calls), given
        assert not it.may_say(call(calls, ONE, given), AUTO, calls=calls), given
    assert not it.may_say(call(calls, ONE) + " and so on", AUTO, calls=calls)


@pytest.mark.parametrize("calls", FORMATS, ids=lambda one: one.name)
def test_who_must_call_says_nothing_else(tongue: Tongue, calls: CallFormat) -> None:
    named = ToolChoice(ToolMode.REQUIRED, "leave", single=True)
    assert tongue.may_say(call(calls, ONE, OTHER), REQUIRED, calls=calls)
    assert not tongue.may_say("text", REQUIRED, calls=calls)
    assert not tongue.may_say("", REQUIRED, calls=calls)
    assert tongue.may_say(call(calls, OTHER), named, calls=calls)
    assert not tongue.may_say(call(calls, ONE), named, calls=calls)
    assert not tongue.may_say(call(calls, OTHER, OTHER), named, calls=calls)


def test_a_single_call_is_followed_by_none(tongue: Tongue) -> None:
    single = ToolChoice(single=True)
    assert tongue.may_say("So: " + call(TOLD, ONE), single)
    assert not tongue.may_say(call(TOLD, ONE, OTHER), single)


def test_with_a_schema_a_model_calls_or_keeps_to_it(tongue: Tongue) -> None:
    assert tongue.may_say('{"x": 1}', AUTO, constraint=SCHEMA)
    assert tongue.may_say(call(TOLD, ONE), AUTO, constraint=SCHEMA)
    assert not tongue.may_say("text", AUTO, constraint=SCHEMA)


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (SCHEMA, "{}", "[]"),
        (Constraint(Language.REGEX, r"a/\d+"), "a/12", "a/b"),
        (Constraint(Language.CHOICES, choices=("yes", 'n"o')), 'n"o', "maybe"),
        (Constraint(Language.GRAMMAR, 'start: "x" /[0-9]/'), "x1", "x"),
    ],
)
def test_a_constraint_holds_behind_a_thought(
    tongue: Tongue, special: Tongue, constraint: Constraint, good: str, bad: str
) -> None:
    for it in (tongue, special):
        for thinking, front in ((Thinking.OPEN, "<think>"), (Thinking.BEGUN, "")):
            for gap in ("", "\n\n"):
                thought = f"{front}\nHm {{ <tool_call>\n</think>{gap}"
                assert it.may_say(thought + good, None, constraint=constraint, thinking=thinking)
                assert not it.may_say(thought + bad, None, constraint=constraint, thinking=thinking)
        assert it.may_say(good, None, constraint=constraint, thinking=Thinking.OPEN)
        assert not it.may_say(good, None, constraint=constraint, thinking=Thinking.BEGUN)


def test_a_call_in_a_thought_is_free_and_one_behind_it_is_not(tongue: Tongue) -> None:
    thought = "<think>I could <tool_call> x</think>\n\n"
    for said in ("Yes", call(TOLD, ONE), "So:\n" + call(TOLD, ONE, OTHER)):
        assert tongue.may_say(thought + said, AUTO, thinking=Thinking.OPEN)
    assert not tongue.may_say(thought + call(TOLD, ("jump", "{}")), AUTO, thinking=Thinking.OPEN)
    assert tongue.may_say("Yes", AUTO, thinking=Thinking.OPEN)
    assert not tongue.may_say("Yes", AUTO, thinking=Thinking.BEGUN)


def test_what_may_be_said_is_what_is_told_apart(tongue: Tongue) -> None:
    said = "<think>Hm</think>\n\nSo:\n" + call(TOLD, ONE, OTHER)
    assert tongue.may_say(said, AUTO, thinking=Thinking.OPEN)
    pieces = Splitter(Thinking.OPEN, TOLD).push(said)
    assert (pieces.reasoning, pieces.text) == ("Hm", "So:")
    assert [delta.name for delta in pieces.calls if delta.name] == ["look", "leave"]


def test_arguments_of_a_strict_tool_keep_all_of_its_schema_or_are_refused(tongue: Tongue) -> None:
    odd = {"type": "object", "properties": {}, "unevaluatedItems": True}
    lenient: dict[str, Any] = {"name": "odd", "parameters": odd}
    assert tongue.may_say(call(TOLD, ("odd", "{}")), AUTO, functions=(lenient,))
    with pytest.raises(InvalidRequest) as caught:
        tongue.may_say("", AUTO, functions=({**lenient, "strict": True},))
    assert caught.value.param == "tools"
    assert "unevaluatedItems" in caught.value.message


def test_arguments_are_an_object(tongue: Tongue) -> None:
    with pytest.raises(InvalidRequest) as caught:
        tongue.may_say("", AUTO, functions=({"name": "f", "parameters": {"type": "array"}},))
    assert "'f'" in caught.value.message
