"""What is told of the machine: what it is, not who."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

from loadtest.benchmarks import machine
from loadtest.processes import TICKS_PER_S


def test_busy_is_what_was_neither_idle_nor_waited_for_disks(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 5 5 5 5\n")
    assert machine.busy_seconds(stat) == 87600321 / TICKS_PER_S


def test_a_processor_has_its_name_or_its_kind(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nmodel name\t: A  Chip: 9000\nflags : x\n\nmodel name\t: B\n")
    assert machine.processor(told) == "A Chip: 9000"
    told.write_text("processor\t: 0\n")
    assert machine.processor(told) == platform.machine()


def test_a_machine_is_described_without_its_name() -> None:
    told = machine.described()
    assert platform.node() not in told
    assert " cores of " in told
    assert " GiB, Python 3." in told


def test_a_commit_is_marked_where_code_was_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(("git", *who, *words), cwd=tmp_path, check=True, capture_output=True)

    assert machine.commit(tmp_path) == ""
    git("init", "-q")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "benchmarks.md").write_text("a")
    (tmp_path / "code.py").write_text("a")
    git("add", ".")
    git("commit", "-qm", "a")
    (tmp_path / "docs" / "benchmarks.md").write_text("b")
    plain = machine.commit(tmp_path)
    assert len(plain) >= 7
    (tmp_path / "code.py").write_text("b")
    assert machine.commit(tmp_path) == f"{plain}+"
