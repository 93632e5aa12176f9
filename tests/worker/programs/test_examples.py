"""Example programs that are graphs, greedy, on real weights against the plain interpreter."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from tests.worker.loaded import tokenizer_of
from tests.worker.programs.bench import Bench, Node, greedy
from tests.worker.programs.chat_plain import ChatPlain
from tests.worker.programs.plain import Plain
from worker.model.loading import LoadOptions, load
from worker.text.chat import ChatTemplate

EXAMPLES = Path(__file__).parents[3] / "examples"


def graph_of(name: str) -> list[Node]:
    """The example's graph, with every node greedy."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [greedy(node) for node in getattr(module, name).graph()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["judge", "rag", "extract", "self_consistency", "json_parts"])
async def test_an_example_gives_what_a_plain_interpreter_gives(
    name: str, smollm2_folder: Path
) -> None:
    program = graph_of(name)
    tokenizer = tokenizer_of(smollm2_folder)
    template = ChatTemplate.load(smollm2_folder, tokenizer)
    modules = AutoModelForCausalLM.from_pretrained(smollm2_folder).eval()
    if any(node["op"] == "message" for node in program):
        plain: Plain = ChatPlain(modules, tokenizer, smollm2_folder)
    else:
        plain = Plain(modules, tokenizer)
    root = plain.run(program, heals=True)
    model = load(smollm2_folder, LoadOptions(num_pages=512, member="lowered", threads=2))
    async with Bench(model, tokenizer, template) as bench:
        came = await bench.run(program, heal=True)
    assert came.error is None
    assert {name: value for (name, _), value in came.values.items()} == plain.values
    assert came.root == root
