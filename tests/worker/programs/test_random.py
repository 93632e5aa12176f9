"""Random programs against a plain interpreter over transformers, greedy, value by value."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, note, settings
from hypothesis import strategies as st

from gateway.http.programs.prompts import prompts_of
from proto.program import Node as ReadNode
from tests.worker.loaded import tokenizer_of
from tests.worker.programs.bench import Bench, Node, tiny
from tests.worker.programs.chat_plain import ChatPlain
from tests.worker.programs.drawn import FORKED_CHAT, METHODS, chats, programs
from tests.worker.programs.plain import Plain
from worker.model.interface import Model
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer

QUICK, MANY = 25, 1000
QUICK_CHATS, MANY_CHATS = 12, 200
# Scores and logprobs that are closer than float32 computes them may come either way.
ROUNDING = 1e-5
LARGE = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


@dataclass(frozen=True)
class Both:
    """A tiny random model with the real tokenizer's vocabulary, and its modules."""

    model: Model
    modules: Any
    tokenizer: Tokenizer
    folder: Path

    def plain(self, *, is_chat: bool) -> Plain:
        if is_chat:
            return ChatPlain(self.modules, self.tokenizer, self.folder)
        return Plain(self.modules, self.tokenizer)


@pytest.fixture(scope="module")
def both(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Both:
    tokenizer = tokenizer_of(smollm2_folder)
    modules, model = tiny(tokenizer.vocab_size, tmp_path_factory.mktemp("tiny"))
    return Both(model, modules, tokenizer, smollm2_folder)


def compared(both: Both, count: int, *, is_chat: bool) -> None:
    """So many programs, one after the other on one worker, whose cache fills up with them."""
    with asyncio.Runner() as runner:
        template = ChatTemplate.load(both.folder, both.tokenizer) if is_chat else None
        bench = Bench(both.model, both.tokenizer, template)
        runner.run(bench.__aenter__())

        @settings(max_examples=count, deadline=None, print_blob=True, suppress_health_check=LARGE)
        @given(program=chats() if is_chat else programs(), heals=st.booleans())
        def each(program: list[Node], heals: bool) -> None:
            note(json.dumps(program))
            same(runner, bench, both.plain(is_chat=is_chat), program, heals=heals)

        if is_chat:
            each = example(program=FORKED_CHAT, heals=True)(each)
        try:
            each()
            runner.run(bench.quiet())
        finally:
            runner.run(bench.__aexit__())


def same(
    runner: asyncio.Runner, bench: Bench, plain: Plain, program: list[Node], *, heals: bool
) -> None:
    """The worker's values, text and scores are the plain interpreter's.

    Its selects take no more than a gateway reserves for them.
    """
    root = plain.run(program, heals=heals)
    assume(plain.narrowest > ROUNDING)
    came = runner.run(bench.run(program, heal=heals))
    assert came.error is None
    assert {name: value for (name, _), value in came.values.items()} == plain.values
    assert came.root == root
    for name, scores in plain.scores.items():
        last = came.last(name)
        assert last.scores == pytest.approx(scores, abs=1e-4)
        assert last.text == plain.values[name]
    assert came.usage is not None
    assert came.usage.prompt_tokens == sum(came.last(name).prompt_tokens for name in plain.values)
    selected = sum(came.last(name).prompt_tokens for name in plain.scores)
    assert selected <= prompts_of(msgspec.convert(program, list[ReadNode])).selects


def test_random_programs_give_what_a_plain_interpreter_gives(both: Both) -> None:
    compared(both, QUICK, is_chat=False)


@pytest.mark.slow
def test_a_thousand_random_programs_give_what_a_plain_interpreter_gives(both: Both) -> None:
    compared(both, MANY, is_chat=False)


def test_random_chats_give_what_a_plain_interpreter_gives(both: Both) -> None:
    compared(both, QUICK_CHATS, is_chat=True)


@pytest.mark.slow
def test_many_random_chats_give_what_a_plain_interpreter_gives(both: Both) -> None:
    compared(both, MANY_CHATS, is_chat=True)


def test_every_kind_is_drawn(both: Both) -> None:
    found: set[str] = set()

    @settings(max_examples=100, derandomize=True, phases=[Phase.generate], database=None)
    @given(programs())
    def each(program: list[Node]) -> None:
        for nodes in branches(program):
            found.update(kind for node in nodes for kind in kinds(node))
            for before, node in pairwise(nodes):
                if (before["op"], node["op"]) == ("text", "select"):
                    found.update(kinds_of_choices(both.tokenizer, before, node))

    each()
    wanted = {"text", "a value read", "gen", "a stop", *METHODS, "fork", "a fork within a fork"}
    assert found == {*wanted, "choices that share tokens", "choices that merge with the text"}


def branches(nodes: list[Node]) -> Iterator[list[Node]]:
    """Every list of nodes."""
    yield nodes
    for node in nodes:
        for inner in node.get("branches", []):
            yield from branches(inner)


def kinds(node: Node) -> Iterator[str]:
    yield str(node.get("method", node["op"]))
    if any(isinstance(part, dict) for part in node.get("text", [])):
        yield "a value read"
    if node.get("stop"):
        yield "a stop"
    if any(inner["op"] == "fork" for branch in node.get("branches", []) for inner in branch):
        yield "a fork within a fork"


def kinds_of_choices(tokenizer: Tokenizer, before: Node, node: Node) -> Iterator[str]:
    front = "".join(part for part in before["text"] if isinstance(part, str))
    bare = tokenizer.encode_literal(front)
    ids = [tokenizer.encode_literal(front + choice) for [choice] in node["choices"]]
    if any(one[: len(bare)] != bare for one in ids):
        yield "choices that merge with the text"
    if len({tuple(one[: len(bare) + 1]) for one in ids}) < len(ids):
        yield "choices that share tokens"
