from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
DECIDERS = [
    module
    for contract in PROJECT["tool"]["importlinter"]["contracts"]
    if contract["name"] == "The worker's deciders know no tensors"
    for module in contract["source_modules"]
]


def sources() -> list[Path]:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [path for path in files if "_pb2" not in path.name]


def too_long(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    name = path.relative_to(ROOT)
    lines = len(text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{name} has {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # A GPU kernel's parameters stand one to a line: its body counts.
            kernel = any(ast.unparse(one) == "triton.jit" for one in node.decorator_list)
            first = node.body[1].lineno if kernel and len(node.body) > 1 else node.lineno
            length = (node.end_lineno or first) - first + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{name}:{node.lineno} {node.name} has {length} lines"


def test_imports_go_down_only() -> None:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


def test_files_and_functions_stay_readable() -> None:
    found = [complaint for path in sources() for complaint in too_long(path)]
    assert not found, "\n".join(found)


def test_lengths_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / "long.py"
    path.write_text("def long():\n" + "    pass\n" * 40 + "\n" * 400)
    assert list(too_long(path)) == ["long.py has 441 lines", "long.py:1 long has 41 lines"]
    head = "@triton.jit\ndef kernel(\n" + "    x,\n" * 30 + '):\n    """It."""\n'
    path.write_text(head + "    pass\n" * 40)
    assert not list(too_long(path))
    path.write_text(head + "    pass\n" * 41)
    assert list(too_long(path)) == ["long.py:2 kernel has 41 lines"]


@pytest.mark.parametrize("package", PACKAGES)
def test_our_names_mean_our_packages(package: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).parent == ROOT / package


def test_every_folder_of_code_is_a_package_that_is_shipped_and_linted() -> None:
    folders = {path.parent for path in ROOT.glob("*/__init__.py")} - {ROOT / "tests"}
    assert {folder.name for folder in folders} == set(PACKAGES)
    nested = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for folder in folders
        for path in folder.rglob("__init__.py")
    }
    assert nested == set(PROJECT["tool"]["setuptools"]["packages"])


def test_every_module_of_the_worker_is_a_decider_or_holds_tensors() -> None:
    holders = {"worker.__init__", "worker.__main__", "worker.model", "worker.runner"}
    holders |= {"worker.parallel", "worker.sampler", "worker.sizes"}
    holders |= {"worker.assembly", "worker.encoding", "worker.tasks"}
    members = {path for path in (ROOT / "worker").iterdir() if path.suffix == ".py"}
    members |= {path.parent for path in (ROOT / "worker").glob("*/__init__.py")}
    assert {f"worker.{path.stem}" for path in members} - holders == set(DECIDERS)


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sources()
        if len(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "") < 20
    ]
    assert not silent
