"""The examples and the document's programs run, as what they say they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import pando
from pando.run import load
from tests.pando.program_server import ProgramServer

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "programs.md").read_text("utf-8")
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
SESSIONS = {"tree_of_thought.py"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(server: ProgramServer, name: str) -> None:
    result = load(str(ROOT / "examples" / name)).run()
    assert (result.needs is not None) == (name in SESSIONS)
    assert result.usage.requests == (2 if name in SESSIONS else 1)
    assert len(result.nodes) == len(result.variables) > 3
    assert f"({'../examples/' + name})" in PAGE


def test_the_documents_program_runs(
    server: ProgramServer, capsys: pytest.CaptureFixture[str]
) -> None:
    [block] = [one for one in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "def " in one]
    exec(block, {})
    assert "tip#0.2" in capsys.readouterr().out
    assert len(server.bodies) == 1


def test_the_documents_graph_is_taken(server: ProgramServer) -> None:
    [text] = re.findall(r"v1/programs .*? -d '(.*?)'\n", PAGE, re.S)
    body: dict[str, Any] = json.loads(text)
    answer = server.answered(body)
    assert list(answer["variables"]) == ["city", "river", "size", "end"]

    @pando.program
    def same(s: pando.State) -> None:
        s += "The capital of France is" + pando.gen("city", 4, stop=".")
        river, size = s.fork(2)
        river += ". Its river is the" + pando.gen("river", 4)
        size += ". It is" + pando.select("size", [" large", " small"])
        s += ".\nIn short:" + s["city"] + " lies on the" + river["river"] + ", and"
        s += pando.gen("end", 8)

    told = json.dumps(same.graph()).replace("#0.0", "").replace("#0.1", "")
    method = ', "method": "token_length_normalized"'
    assert json.loads(told.replace(method, "")) == body["program"]
