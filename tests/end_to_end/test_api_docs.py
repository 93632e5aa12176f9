"""The examples of docs/api.md and docs/programs.md, pasted."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from tests.end_to_end.conftest import ROOT, Fleet

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl")
PAGES = ("api.md", "structured-output.md", "programs.md")


def calls() -> list[str]:
    """Every curl of the pages."""
    found = []
    for page in PAGES:
        text = (ROOT / "docs" / page).read_text()
        for block in re.findall(r"^```(?:bash|sh)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            found += re.findall(r"^curl .*?(?=^curl |\Z)", block, re.MULTILINE | re.DOTALL)
    return found


@pytest.mark.parametrize("call", calls(), ids=lambda call: call.splitlines()[0][8:70])
def test_an_example_is_answered(fleet: Fleet, call: str) -> None:
    command = call.replace("http://127.0.0.1:8000", fleet.url)
    run = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=True)
    if run.stdout.startswith("data:"):
        assert "data: [DONE]" in run.stdout
    else:
        assert json.loads(run.stdout).get("error") is None
