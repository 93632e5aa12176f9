"""Tries faults: each in a copy of its own, against the tests that should notice it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.planted.fault import Fault

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    *("gateway", "worker", "pando", "loadtest", "kernels", "process", "proto"),
    *("deploy", "tests", "docs", "pyproject.toml"),
)
LIMIT_S = 180.0
BY_LIMIT = "the time limit"
PYTEST = (
    *("-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "not slow"),
    "--hypothesis-profile=planted",
)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Unfit(Exception):
    """The tests say nothing: they fail without a fault, or can't be run with it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """caught_by: the test that failed, or BY_LIMIT; None: the fault was missed."""

    fault: Fault
    caught_by: str | None
    seconds: float


def tried(faults: list[Fault], jobs: int) -> Iterator[Outcome]:
    """Yields what became of each fault, in order: all of them in the sources as they are now.

    Raises LostFault, and Unfit if the tests fail without a fault.
    """
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        source = Path(name)
        copy(ROOT, source)
        for fault in faults:
            planted = fault.planted((source / fault.file).read_text("utf-8"))
            if fault.file.endswith(".py"):
                ast.parse(planted)
        check_without(sorted({test for fault in faults for test in fault.tests}), source)
        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(lambda fault: outcome(fault, source), faults)


def outcome(fault: Fault, source: Path = ROOT, limit_s: float = LIMIT_S) -> Outcome:
    """Plants one fault and runs its tests. Raises Unfit, LostFault."""
    started = time.monotonic()
    caught_by = first_failure(fault.tests, fault, source, limit_s)
    return Outcome(fault, caught_by, time.monotonic() - started)


def check_without(tests: Iterable[str], source: Path = ROOT) -> None:
    """Raises Unfit unless these tests pass in a copy without a fault."""
    failed = first_failure(tuple(tests), None, source, 4 * LIMIT_S)
    if failed is not None:
        raise Unfit(f"with nothing planted: {failed}")


def first_failure(
    tests: tuple[str, ...], fault: Fault | None, source: Path, limit_s: float
) -> str | None:
    """Returns what fails first in a copy with the fault in it; None: nothing does."""
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        folder = Path(name)
        copy(source, folder)
        if fault is not None:
            fault.plant(folder)
        code, output = _pytest(folder, tests, limit_s)
    if code is None:
        return BY_LIMIT
    if code == 0:
        return None
    failed = FAILED.search(output)
    if code < 0:
        return f"a crash ({signal.Signals(-code).name})"
    if code != 1 or failed is None:
        raise Unfit(f"{fault.name if fault else 'nothing planted'}: pytest ends with {output}")
    return failed[1]


def copy(source: Path, folder: Path) -> None:
    """Copies what the tests need of the repository."""
    for name in COPIED:
        if (source / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source / name, folder / name, ignore=ignored)
        else:
            shutil.copy2(source / name, folder / name)


def _pytest(folder: Path, tests: tuple[str, ...], limit_s: float) -> tuple[int | None, str]:
    """Returns pytest's exit code, None at the limit, and what it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *PYTEST, *tests],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return process.returncode, output
