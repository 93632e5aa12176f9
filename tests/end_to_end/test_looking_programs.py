"""Functions that look at values, greedy, as sessions of a fleet against the plain interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import pando
from pando.programs.client import Stopper, Tell
from pando.programs.document import Read, Step, Writer, messages_of, text_of
from pando.programs.function import Program
from pando.programs.state import Run, State
from pando.programs.tracing import literal
from pando.programs.value import Part
from pando.programs.wire import Answer
from pando.run import load
from tests.end_to_end.conftest import MODEL, ROOT, Fleet
from tests.worker.programs.bench import greedy
from tests.worker.programs.chat_plain import ChatPlain
from worker.text.tokenizer import Tokenizer


@pando.program
def town(s: pando.State) -> str:
    """Branches that differ, a root that goes on behind a look, and a look that decides."""
    s += pando.user("What does a town have?")
    forks = s.fork(2)
    for letter, fork in zip("BM", forks, strict=True):
        fork += pando.assistant(  # noqa: PLW2901
            f"A town has a {letter}" + pando.gen("thing", max_tokens=4, stop=[".", ","])
        )
    longest = max(forks["thing"], key=len)
    s += pando.assistant("It has" + pando.gen("first", max_tokens=5, stop="."))
    s += pando.user(f"And {longest}?" if len(s["first"]) > 3 else "And then?")
    s += pando.assistant("It is " + pando.select("size", ["large", "small", "lasting"]))
    s += pando.user("Why?" if s["size"] == "large" else "Why not large?")
    s += pando.assistant(pando.gen("why", max_tokens=8, stop="\n"))
    return str(s["why"])


class Greedy(pando.Client):
    """Asks for the likeliest of everything."""

    def ask(self, body: dict[str, Any], stopper: Stopper, tell: Tell | None) -> Answer:
        return super().ask({**body, "program": greedy(body["program"])}, stopper, tell)


class Remembering(ChatPlain):
    """Computes no text twice. known: what follows texts, of all that interpret one function."""

    known: dict[tuple[int, ...], torch.Tensor]

    def behind(self, ids: list[int]) -> torch.Tensor:
        found = self.known.get(tuple(ids))
        if found is None:
            found = self.known[tuple(ids)] = super().behind(ids)
        return found


class Interpreted:
    """A Reader that interprets all of the program once more for a value that isn't known."""

    def __init__(self, steps: list[Step], folder: Path) -> None:
        self.steps = steps
        self.folder = folder
        self.modules = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = Tokenizer.load(folder)
        self.known: dict[tuple[int, ...], torch.Tensor] = {}
        self.values: dict[str, str] = {}

    def read(self, name: str) -> Read:
        if name not in self.values:
            plain = Remembering(self.modules, self.tokenizer, self.folder)
            plain.known = self.known
            plain.run(greedy(Writer().nodes(self.steps)), heals=True)
            assert self.values.items() <= plain.values.items()
            self.values = plain.values
        return self.values[name]

    def parts(self, text: str) -> list[Part]:
        return literal(text)

    def text(self, steps: Sequence[Step]) -> str:
        return text_of(steps, self.values)

    def messages(self, steps: Sequence[Step]) -> list[dict[str, str]]:
        return messages_of(steps, self.values)


def interpreted(program: Program, folder: Path) -> tuple[Any, dict[str, str]]:
    """What the function returns and the values, every step interpreted."""
    steps: list[Step] = []
    reader = Interpreted(steps, folder)
    return program(State(Run(reader), steps)), reader.values


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tree_of_thought", "town"])
def test_a_session_gives_what_its_function_gives_on_a_plain_interpreter(
    fleet: Fleet, smollm2_folder: Path, name: str
) -> None:
    program = town if name == "town" else load(str(ROOT / "examples" / f"{name}.py"))
    with Greedy(fleet.url, model=MODEL) as client:
        result = program.run(client=client, temperature=0)
    assert result.usage.requests > 1
    assert (result.returned, dict(result.variables)) == interpreted(program, smollm2_folder)
