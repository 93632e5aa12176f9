"""Which constraint a request asks for, and which tool may be called."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.http.intake import Caller, chat_job, completion_job
from gateway.http.openai import read_chat, read_completion
from gateway.http.tiers import tier_of
from gateway.request import ChatPrompt, Constraint, Language, Share, ToolChoice, ToolMode
from gateway.routing.prefix import Overrides
from gateway.tenancy.tenants import Tenant

LIMITS = LimitConfig()
CALLER = Caller("r", Tenant("acme", b"acme"), Overrides(), 7)
OBJECT = Constraint(Language.JSON_SCHEMA, '{"type":"object"}')
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMED = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
TOOLS = [{"function": {"parameters": {"z": 1, "a": 2}, "name": "look"}, "type": "function"}]


def asked(limits: LimitConfig = LIMITS, **fields: Any) -> tuple[ChatPrompt, Constraint | None]:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    request = read_chat(json.dumps(body).encode(), limits)
    ask = chat_job(request, "m", replace(CALLER, limits=limits)).parts[0].ask
    assert isinstance(ask.prompt, ChatPrompt)
    return ask.prompt, ask.decoding.constraint


def refused(limits: LimitConfig = LIMITS, **fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        asked(limits, **fields)
    return caught.value.param


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, OBJECT),
        (
            {"response_format": NAMED},
            Constraint(Language.JSON_SCHEMA, json.dumps(SCHEMA, separators=(",", ":"))),
        ),
        ({"structured_outputs": {"json_object": True}}, OBJECT),
        ({"structured_outputs": {"json": '{"type": "object"}'}}, OBJECT),
        ({"structured_outputs": {"json": {}}}, Constraint(Language.JSON_SCHEMA, "{}")),
        ({"structured_outputs": {"regex": "a+"}}, Constraint(Language.REGEX, "a+")),
        (
            {"structured_outputs": {"grammar": "start: /a/"}},
            Constraint(Language.GRAMMAR, "start: /a/"),
        ),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Constraint(choices=("a", "b"))),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "text"}},
            Constraint(Language.REGEX, "a"),
        ),
    ],
)
def test_what_is_asked_becomes_one_constraint(
    fields: dict[str, Any], constraint: Constraint | None
) -> None:
    assert asked(**fields)[1] == constraint


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {**NAMED, "type": "text"}}, "response_format.json_schema"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"json": "no json"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": "[1]"}}, "structured_outputs.json"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": ["a", ""]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"regex": "a"}, "response_format": NAMED}, "structured_outputs"),
        ({"structured_outputs": {"xml": "a"}}, "structured_outputs.xml"),
    ],
)
def test_a_constraint_that_says_nothing_sure_is_refused(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields) == param


def test_large_sources_are_refused_by_their_field() -> None:
    few = msgspec.structs.replace(LIMITS, grammar_chars=10, grammar_choices=2, json_depth=4)
    deep: dict[str, Any] = {"a": {"a": {"a": {"a": {"a": {}}}}}}
    path = "response_format.json_schema.schema"
    assert refused(few, structured_outputs={"regex": "a" * 11}) == "structured_outputs.regex"
    assert (
        refused(few, structured_outputs={"choice": ["abcdef", "bcdefg"]})
        == "structured_outputs.choice"
    )
    assert refused(few, structured_outputs={"choice": list("abc")}) == "structured_outputs.choice"
    assert refused(few, response_format=NAMED) == path
    named = {"type": "json_schema", "json_schema": {"name": "x", "schema": deep}}
    assert refused(few, response_format=named) == path


def test_tools_reach_the_worker_in_the_order_that_models_know_and_keep_their_schemas() -> None:
    prompt, _ = asked(tools=TOOLS)
    assert prompt.tools == (
        b'[{"type":"function","function":{"name":"look","parameters":{"z":1,"a":2}}}]'
    )


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({}, ToolChoice()),
        ({"tool_choice": "auto"}, ToolChoice()),
        ({"tool_choice": None, "parallel_tool_calls": False}, ToolChoice(single=True)),
        ({"tool_choice": "none"}, ToolChoice(ToolMode.NONE)),
        ({"tool_choice": "required"}, ToolChoice(ToolMode.REQUIRED)),
        (
            {"tool_choice": {"type": "function", "function": {"name": "look"}}},
            ToolChoice(ToolMode.REQUIRED, "look", single=True),
        ),
    ],
)
def test_how_tools_may_be_used(fields: dict[str, Any], choice: ToolChoice) -> None:
    assert asked(tools=TOOLS, **fields)[0].tool_choice == choice


@pytest.mark.parametrize(
    "value",
    [
        "any",
        {"type": "function", "function": {"name": "jump"}},
        {"type": "function"},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        7,
    ],
)
def test_another_tool_choice_is_refused(value: object) -> None:
    assert refused(tools=TOOLS, tool_choice=value) == "tool_choice"


def test_a_tool_is_required_only_of_those_who_have_one() -> None:
    assert refused(tool_choice="required") == "tool_choice"
    assert asked(tools=[], tool_choice="none")[0].tools == b""


def test_whoever_must_call_a_tool_gives_no_other_answer() -> None:
    assert asked(tools=TOOLS, tool_choice="required", response_format=NAMED)[1] is None
    assert asked(tools=TOOLS, response_format=NAMED)[1] is not None


def test_effort_is_told_to_the_template() -> None:
    assert json.loads(asked(reasoning_effort="none")[0].template_kwargs) == {
        "reasoning_effort": "none",
        "enable_thinking": False,
    }
    named = asked(reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "x"})[0]
    assert json.loads(named.template_kwargs) == {"reasoning_effort": "x"}


def test_the_best_of_several_is_told_by_logprobs_that_nobody_asked_for() -> None:
    body = {"model": "m", "prompt": "x", "best_of": 3, "n": 2}
    request = read_completion(json.dumps(body).encode(), LIMITS)
    decoding = completion_job(request, "m", CALLER, 100).parts[0].ask.decoding
    assert (decoding.n, decoding.top_logprobs, decoding.score_prompt) == (3, 0, False)


def test_an_echo_with_logprobs_scores_the_prompt_and_one_without_does_not() -> None:
    for logprobs, scored in ((0, True), (None, False)):
        body = {"model": "m", "prompt": "x", "echo": True, "logprobs": logprobs, "max_tokens": 0}
        request = read_completion(json.dumps(body).encode(), LIMITS)
        decoding = completion_job(request, "m", CALLER, 100).parts[0].ask.decoding
        assert (decoding.echo, decoding.score_prompt) == (True, scored)
        assert decoding.stopping.max_tokens == 1


def test_a_tier_lowers_a_priority_and_never_raises_one() -> None:
    def got(asked: str | None, rank: int) -> tuple[int, int, str | None]:
        tenant = Tenant("a", b"a", rank=rank, share=Share(priority=1 - rank))
        caller, told = tier_of(asked, replace(CALLER, tenant=tenant))
        return caller.tenant.rank, caller.tenant.share.priority, told

    assert got(None, 0) == (0, 1, None)
    assert got("flex", 0) == (2, -1, "flex")
    assert got("flex", 1) == (2, -1, "flex")
    assert got("flex", 2) == (2, -1, "flex")
    assert got("priority", 2) == (2, -1, "default")
    assert got("priority", 1) == (1, 0, "default")
    assert got("auto", 0) == (0, 1, "priority")
