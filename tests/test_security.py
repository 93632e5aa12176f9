"""docs/security.md names tests that exist, and what is said of sources and pins is so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "security.md"
OURS = ("gateway", "kernels", "pando", "process", "proto", "worker")
# What makes code of text, or objects of whatever bytes.
UNSAFE = {"eval", "exec", "compile", "__import__"}
UNSAFE_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
UNSAFE_CALLS = {"torch.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system"}


def promises(text: str) -> Iterator[list[str]]:
    """The rows of the tables that have a column of tests."""
    is_one = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            is_one = False
        elif cells[-1] == "test":
            is_one = True
        elif is_one and not set(line) <= set("|- "):
            yield cells


@cache
def defined(path: Path) -> frozenset[str]:
    """The tests of a file, by name."""
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_")
    )


def broken(text: str) -> list[str]:
    """Rows without a test, and tests that are not there."""
    found = []
    for cells in promises(text):
        named = re.findall(r"`(tests/[^`\s]+)`", cells[-1])
        if len(cells) != 3 or not all(cells) or not named:
            found.append(f"no test: {cells[0]}")
        for test in named:
            file, _, name = test.partition("::")
            if name not in defined(ROOT / file):
                found.append(test)
    return found


def test_every_promise_has_a_test_that_is_there() -> None:
    text = PAGE.read_text("utf-8")
    assert broken(text) == []
    assert len(list(promises(text))) > 40
    chapters = re.findall(r"(?m)^## (.*)$", text)
    assert len(chapters) == 7
    assert text.count("Not promised:") == len(chapters) - 1


def test_a_promise_without_one_is_found() -> None:
    head = "| promise | how | test |\n|---|---|---|\n"
    here = "`tests/test_security.py::test_a_promise_without_one_is_found`"
    assert broken(f"{head}| a | b | {here} |\n") == []
    gone = "tests/test_security.py::test_gone"
    assert broken(f"{head}| a | b | {here}, `{gone}` |\n") == [gone]
    assert broken(f"{head}| a | b | by care |\n") == ["no test: a"]
    assert broken(f"{head}| a | {here} |\n") == ["no test: a"]


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Every call and import in what runs in production, with its file."""
    wanted = (ast.Call, ast.Import, ast.ImportFrom)
    return [
        (str(path.relative_to(ROOT)), node)
        for package in OURS
        for path in sorted((ROOT / package).rglob("*.py"))
        if "_pb2" not in path.name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, wanted)
    ]


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call, with its file."""
    for file, node in nodes():
        if isinstance(node, ast.Call):
            yield file, node


def constant(call: ast.Call, name: str) -> object:
    """A keyword's value as it stands in the source."""
    values = [word.value for word in call.keywords if word.arg == name]
    return next((value.value for value in values if isinstance(value, ast.Constant)), None)


def test_every_model_is_loaded_without_its_own_code_from_files_that_are_here() -> None:
    found = 0
    for file, call in calls():
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name not in ("from_pretrained", "from_config"):
            continue
        found += 1
        assert constant(call, "trust_remote_code") is False, f"{file}:{call.lineno}"
        if name == "from_pretrained":
            assert constant(call, "local_files_only") is True, f"{file}:{call.lineno}"
    assert found >= 7


def test_nothing_unpickles_or_evaluates_text() -> None:
    for file, call in calls():
        name = ast.unparse(call.func)
        assert name not in UNSAFE | UNSAFE_CALLS, f"{file}:{call.lineno}"
        assert constant(call, "shell") is not True, f"{file}:{call.lineno}"
    for file, node in nodes():
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not UNSAFE_MODULES & {name.split(".")[0] for name in names}, file


def test_everything_that_is_installed_is_pinned() -> None:
    pin = re.compile(r"[A-Za-z0-9._-]+==[^\s;]+( *;.*)?")
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert [it for it in lines if not it.startswith("#") and not pin.fullmatch(it)] == []
    docker = ROOT / "deploy" / "docker"
    steps = "\n".join(path.read_text("utf-8") for path in sorted(docker.glob("*.Dockerfile")))
    installs = re.findall(r"pip install (.*)", steps)
    assert len(installs) >= 5
    for told in installs:
        by_digest = "--require-hashes" in told
        by_version = "-c constraints.txt" in told or re.fullmatch(r".*\S==\S+( \\)?", told)
        assert by_digest or by_version, told
    assert "--require-hashes" in (docker / "gateway.Dockerfile").read_text("utf-8")
