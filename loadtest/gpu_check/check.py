"""The whole check: parts one after the other, shown as they end, kept in a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import torch

from loadtest.gpu_check.findings import Figure, Part, lines, with_shares, written
from loadtest.gpu_check.parts import MACHINE, Plan, run_all, run_here

STATUSES = ("ok", "wrong", "failed", "left out")


def run(plan: Plan, out: Path | None) -> int:
    """Runs all parts; returns the exit status."""
    if plan.rehearse:
        torch.set_num_threads(1)  # more would only wait for one another at such sizes
    elif not torch.cuda.is_available():
        print(
            "gpu_check: this torch finds no CUDA device here; --rehearse runs all of it in tiny "
            "sizes on the CPU.",
            file=sys.stderr,
        )
        return 2
    found = shown(run_all(plan), plan, out)
    counts = {status: sum(part.status == status for part in found) for status in STATUSES}
    told = (f"{status.replace(' ', '_')}={count}" for status, count in counts.items())
    print("gpu-check: " + " ".join(told), flush=True)
    return 1 if counts["wrong"] or counts["failed"] else 0


def shown(parts: Iterable[Part], plan: Plan, out: Path | None) -> list[Part]:
    """Prints each part as it ends; what there is stays in the file, whatever comes next."""
    machine: Mapping[str, Figure] = {}
    found: list[Part] = []
    for part in parts:
        if part.name == MACHINE and part.rows:
            machine = part.rows[0].figures
        found.append(with_shares(part, machine))
        print("\n".join(lines(found[-1])), flush=True)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            told = {"rehearsal": plan.rehearse, "parts": [asdict(one) for one in found]}
            out.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    return found


def run_part(name: str, rehearse: bool) -> int:
    """Runs one part in this process and prints it as JSON; returns the exit status."""
    print(written(run_here(name, Plan(rehearse, 0.0))), flush=True)
    return 0
