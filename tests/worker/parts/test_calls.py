"""Calls through service and engine, of a model that knows nothing: each is one of a tool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.worker.desk import Record
from tests.worker.grammar.weak import WARM
from tests.worker.loaded import tokenizer_of
from tests.worker.test_constrained_service import GatedCompiler, House
from worker.request import FinishReason
from worker.sequence import pack_tokens
from worker.submission import (
    ChatInput,
    Constraint,
    Language,
    Output,
    Resumed,
    StopRules,
    Submission,
    ToolChoice,
    ToolMode,
)
from worker.text.chat import ChatTemplate
from worker.text.template import Template
from worker.text.tokenizer import Tokenizer

SOURCE = (
    "{# tools, <tool_call> #}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKS = "{# </think> #}" + SOURCE
BEGUN = THINKS.replace("assistant\n", "assistant\n<think>\n")
LEVEL = {
    "type": "object",
    "properties": {
        "level": {"enum": ["low", "high"]},
        "n": {"type": "integer", "maximum": 99, "minimum": 0},
    },
    "required": ["level", "n"],
    "additionalProperties": False,
}
NONE = {"type": "object", "additionalProperties": False}
SCHEMAS = {"set_level": LEVEL, "leave": NONE}
TOOLS = json.dumps(
    [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in SCHEMAS.items()
    ]
).encode()
MESSAGES = json.dumps([{"role": "user", "content": "Do it."}]).encode()
ANSWER = Constraint(Language.JSON_SCHEMA, json.dumps(LEVEL))


class Parted:
    """Outputs of one choice, put together."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        self.text = "".join(one.text for one in outputs)
        self.reasoning = "".join(one.reasoning for one in outputs)
        self.calls: dict[int, list[str]] = {}
        for output in outputs:
            for delta in output.tool_calls:
                call = self.calls.setdefault(delta.index, ["", ""])
                call[0] += delta.name
                call[1] += delta.arguments

    def told(self) -> tuple[str, str, dict[int, list[str]]]:
        return self.text, self.reasoning, self.calls


def parted(outputs: Sequence[Output], choice: int = 0) -> Parted:
    return Parted([one for one in outputs if one.choice == choice])


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(params=[SOURCE, THINKS], ids=["plain", "thinks"])
async def house(
    request: pytest.FixtureRequest, smollm2_folder: Path, tokenizer: Tokenizer
) -> AsyncIterator[House]:
    template = ChatTemplate(Template(request.param, request.param, {}), tokenizer)
    house = House(smollm2_folder, tokenizer, GatedCompiler(tokenizer), template)
    house.engine.start(lambda: None)
    yield house
    await house.quiet()
    house.engine.stop()
    house.cache.check()


def asked(choice: ToolChoice, **more: Any) -> Submission:
    chat = ChatInput(MESSAGES, TOOLS, b"", choice)
    return Submission(1, chat, WARM, seed=7, rules=StopRules(max_tokens=120), **more)


REQUIRED = ToolChoice(ToolMode.REQUIRED, single=True)


def thinks_on(outputs: Sequence[Output], choice: int = 0) -> bool:
    """Whether a choice was cut while it thought: a model that knows nothing seldom stops."""
    last = [one for one in outputs if one.choice == choice][-1]
    found = parted(outputs, choice)
    return last.finish is FinishReason.LENGTH and bool(found.reasoning) and not found.calls


async def test_every_call_names_a_tool_and_has_arguments_of_its_schema(house: House) -> None:
    record = await house.run(asked(REQUIRED, n=8))
    calls = 0
    for choice in range(8):
        found = parted(record.outputs, choice)
        assert not found.text
        if thinks_on(record.outputs, choice):
            continue
        [[name, arguments]] = found.calls.values()
        jsonschema.validate(json.loads(arguments), SCHEMAS[name])
        calls += 1
    assert calls


async def test_a_named_tool_is_the_one_that_is_called(house: House) -> None:
    for name in SCHEMAS:
        named = ToolChoice(ToolMode.REQUIRED, name, single=True)
        record = await house.run(asked(named, n=8))
        found = [parted(record.outputs, choice) for choice in range(8)]
        assert {call[0] for one in found for call in one.calls.values()} == {name}


async def test_a_call_cut_anywhere_goes_on_with_the_very_arguments(house: House) -> None:
    whole = list((await house.run(asked(REQUIRED))).outputs)
    told = parted(whole).told()
    for cut in range(1, len(whole)):
        tokens = [token for one in whole[:cut] for token in one.tokens]
        resume = (Resumed(0, pack_tokens(tokens), whole[cut - 1].text_chars),)
        record = await house.run(asked(REQUIRED, resume=resume))
        assert parted([*whole[:cut], *record.outputs]).told() == told


async def test_an_answer_that_must_conform_does_so_beside_tools(house: House) -> None:
    for seed in range(6):
        request = asked(ToolChoice(single=True), constraint=ANSWER)
        record = await house.run(Submission(**{**fields(request), "seed": seed}))
        found = parted(record.outputs)
        assert thinks_on(record.outputs) or bool(found.text) != bool(found.calls)
        if found.text:
            jsonschema.validate(json.loads(found.text), LEVEL)


async def test_tools_that_may_not_be_called_leave_text_free(house: House) -> None:
    record = await house.run(asked(ToolChoice(ToolMode.NONE)))
    found = parted(record.outputs)
    assert not found.calls
    assert len(found.text) > 100


async def test_a_hang_up_within_a_call_leaves_nothing(house: House) -> None:
    for pause_s in (0, 0.002, 0.01, 0.05):
        house.link.ends.clear()
        house.service.submit(house.link, asked(REQUIRED, n=4))
        await asyncio.sleep(pause_s)
        house.service.cancel(house.link, 1)
        await house.quiet()


async def test_behind_a_thought_that_the_prompt_began_an_answer_conforms(
    smollm2_folder: Path, tokenizer: Tokenizer
) -> None:
    template = ChatTemplate(Template(BEGUN, BEGUN, {}), tokenizer)
    house = House(smollm2_folder, tokenizer, GatedCompiler(tokenizer), template)
    house.engine.start(lambda: None)
    mark = tokenizer.encode_literal("</think>")
    house.runner.likes = frozenset(mark)
    record: Record = await house.run(
        Submission(
            1, ChatInput(MESSAGES), WARM, seed=3, rules=StopRules(max_tokens=300), constraint=ANSWER
        )
    )
    found = parted(record.outputs)
    assert "</think>" not in found.text
    if record.outputs[-1].finish is not None and found.text:
        jsonschema.validate(json.loads(found.text), LEVEL)
    await house.quiet()
    house.engine.stop()


def fields(submission: Submission) -> dict[str, Any]:
    return {name: getattr(submission, name) for name in submission.__dataclass_fields__}
