"""What is run: each part by itself, so that what one of them breaks the others keep.

On a GPU a part is a process of its own: a kernel that reads astray leaves nothing behind it usable.
"""

from __future__ import annotations

import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from loadtest.gpu_check import agreement, machine, serving, speed
from loadtest.gpu_check.findings import Part, Row, parsed, part_of
from loadtest.gpu_check.scale import GPU, REHEARSAL, Scale

ROOT = Path(__file__).resolve().parents[2]
MACHINE = "machine"
SEPARATOR = ":"
MAX_PART_S = 150.0
TAIL_CHARS = 600

BY_MEMBER: dict[str, Callable[[Scale, str], list[Row]]] = {
    "agreement": agreement.compare,
    "speed": speed.measure,
    "serving": serving.measure,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How the check is run. limit_s: for all of it. python: what runs the parts of a GPU."""

    rehearse: bool
    limit_s: float
    python: str = sys.executable

    @property
    def scale(self) -> Scale:
        """The sizes."""
        return REHEARSAL if self.rehearse else GPU


def names(scale: Scale) -> list[str]:
    """Returns all parts in order: what matters most comes first, should time run out."""
    by_member = [f"{kind}{SEPARATOR}{member}" for kind in BY_MEMBER for member in scale.members]
    return [MACHINE, *by_member]


def run_all(plan: Plan, clock: Callable[[], float] = time.monotonic) -> Iterator[Part]:
    """Yields each part as it ends; what time is not left for is left out by name."""
    end = clock() + plan.limit_s
    run = run_here if plan.rehearse else run_apart
    for name in names(plan.scale):
        left = end - clock()
        if left <= 0:
            reason = f"no time left of {plan.limit_s:.0f} s"
            yield Part(name, "left out", reason=reason)
        else:
            yield run(name, plan, min(left, MAX_PART_S))


def run_here(name: str, plan: Plan, _limit_s: float = 0.0) -> Part:
    """Runs a part in this process. Its error is its result."""
    began = time.perf_counter()
    try:
        rows = rows_of(name, plan.scale)
    except (ValueError, ImportError) as error:
        return Part(name, "left out", time.perf_counter() - began, reason=str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        return Part(name, "failed", time.perf_counter() - began, reason=reason[:TAIL_CHARS])
    seconds = time.perf_counter() - began
    if all("refused" in row.figures for row in rows):
        return Part(name, "left out", seconds, reason=str(rows[0].figures["refused"]))
    return part_of(name, rows, seconds)


def run_apart(name: str, plan: Plan, limit_s: float) -> Part:
    """Runs a part in a process of its own, which is killed when its time is over."""
    command = [plan.python, "-m", "loadtest.gpu_check", "--part", name]
    command += ["--rehearse"] if plan.rehearse else []
    began = time.perf_counter()
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return Part(name, "failed", limit_s, reason=f"not done after {limit_s:.0f} s")
    if done.returncode or not done.stdout.strip():
        reason = f"exit status {done.returncode}: {done.stderr.strip()[-TAIL_CHARS:]}"
        return Part(name, "failed", time.perf_counter() - began, reason=reason)
    return parsed(done.stdout.splitlines()[-1])


def rows_of(name: str, scale: Scale) -> list[Row]:
    """Returns what a part measures. Raises ValueError for an unknown one, and what it raises."""
    if name == MACHINE:
        return machine.measure(scale)
    kind, _, member = name.partition(SEPARATOR)
    if kind not in BY_MEMBER or not member:
        raise ValueError(f"part {name!r} is none of {', '.join(names(scale))}")
    return BY_MEMBER[kind](scale, member)
