"""`pando run`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from pando.command import app
from tests.pando.program_server import ProgramServer

FILE = """
import pando

@pando.program
def first(s, thing: str = "sky", times: int = 1, loud=False):
    s += f"The {thing * times} is" + pando.gen("color", max_tokens=4, n=2)
    s += "!" if loud else "."

@pando.program
def second(s):
    s += "a" + pando.gen("x")
    s += pando.gen("y", max_tokens=1 + len(s["x"]))

if __name__ == "__main__":
    raise AssertionError
"""

Run = Callable[..., Result]


@pytest.fixture
def run(server: ProgramServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `pando run ...` in a folder with a file of two programs."""
    (tmp_path / "two.py").write_text(FILE)
    (tmp_path / "one.py").write_text(FILE.split("@pando.program\ndef second", maxsplit=1)[0])
    (tmp_path / "bad.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)

    def invoke(*words: str, status: int = 0) -> Result:
        environment = {"PANDO_BASE_URL": server.url}
        result = CliRunner().invoke(app, ["run", *words], env=environment)
        assert result.exit_code == status, result.output
        return result

    return invoke


def test_values_trace_and_usage_are_printed(run: Run, server: ProgramServer) -> None:
    lines = run("one.py").stdout.splitlines()
    assert lines[0].startswith('color = ["')
    assert lines[2].split()[:2] == ["node", "op"]
    assert lines[-1] == "1 request, 10 prompt tokens (4 of them cached), 3 generated"
    assert server.bodies[0]["model"] == "tiny"
    session = run("two.py:second").stdout
    assert "Ran as a session: two.py, line 12: len() of a value" in session


def test_arguments_are_read_as_the_function_says(run: Run, server: ProgramServer) -> None:
    run("two.py:first", "--arg", "thing=1", "--arg", "times=3", "--arg", "loud=true")
    text, _, end = server.bodies[0]["program"]
    assert (text["text"], end["text"]) == (["The 111 is"], ["!"])


def test_settings_go_along(run: Run, server: ProgramServer) -> None:
    run("one.py", "--model", "m", "--seed", "7", "--temperature", "0", "--base-url", server.url)
    assert server.bodies[0]["model"] == "m"
    assert server.bodies[0]["sampling"] == {"seed": 7, "temperature": 0.0}


@pytest.mark.parametrize("name", ["--url", "--base-url"])
def test_run_and_warm_take_the_gateway_by_the_same_names(
    run: Run, server: ProgramServer, name: str, tmp_path: Path
) -> None:
    run("one.py", name, server.url)
    (tmp_path / "prefixes.json").write_text("[]")
    nowhere = ["warm", "prefixes.json", name, "http://127.0.0.1:9", "--wait-s", "0"]
    assert CliRunner().invoke(app, nowhere).exit_code == 1  # 2 is a name that it doesn't know


def test_json_and_a_picture(run: Run) -> None:
    told = json.loads(run("one.py", "--json", "--trace", "out.svg").stdout)
    assert len(told["variables"]["color"]) == 2
    assert told["nodes"][0]["seconds"] == 0.25
    assert told["usage"]["requests"] == 1
    assert told["session"] is None
    assert ElementTree.parse("out.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("none.py",), "'none.py' is no Python file"),
        (("bad.py",), "bad.py can't be imported: ZeroDivisionError"),
        (("two.py",), "two.py has these programs: first, second. Name one as two.py:NAME."),
        (("two.py:third",), "two.py has these programs"),
        (("one.py", "--arg", "thing"), "write NAME=VALUE, NAME one of: thing, times, loud"),
        (("one.py", "--arg", "what=1"), "write NAME=VALUE"),
        (("one.py", "--arg", "times=many"), "--arg times: 'many' is no int"),
        (("one.py", "--trace", "none/out.svg"), "--trace none/out.svg can't be written"),
        (("one.py", "--base-url", "http://127.0.0.1:9"), "can't be asked"),
        (("one.py", "--temperature", "9"), "temperature is 9.0"),
    ],
)
def test_what_goes_wrong_is_a_sentence(run: Run, words: tuple[str, ...], sentence: str) -> None:
    result = run(*words, status=1)
    assert sentence in result.stderr
    assert "Traceback" not in result.output
