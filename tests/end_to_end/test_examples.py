"""The example programs, as their readers run them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.end_to_end.conftest import ROOT, Fleet

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_draws_itself(fleet: Fleet, example: Path, tmp_path: Path) -> None:
    drawn = tmp_path / "out.svg"
    command = [sys.executable, "-m", "pando.command", "run", str(example), "--json"]
    command += ["--base-url", fleet.url, "--trace", str(drawn)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)
    assert ElementTree.parse(drawn).getroot().tag.endswith("svg")
