"""`pando analyze` is the analysis' own program, whose words and status it passes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pando.up import ROOT


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pando.command", "analyze", *words],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_log_beside_the_user_is_read_with_the_programs_own_words(tmp_path: Path) -> None:
    # A module of one of our names beside it changes nothing.
    (tmp_path / "gateway.py").write_text("raise SystemExit(7)")
    (tmp_path / "log.jsonl").write_text('{"prompt": "a b c d e"}\n' * 3)
    found = ran(tmp_path, "log.jsonl", "--json", "--workers", "0")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["traffic"]["requests"] == 3


def test_a_failure_is_the_programs_sentence_and_status(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("{}\n")
    found = ran(tmp_path, "log.jsonl")
    assert found.returncode == 1
    assert "holds no request: line 1" in found.stderr.replace("\n", " ")
