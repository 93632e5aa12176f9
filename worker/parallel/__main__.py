"""`python -m worker.parallel`: one rank but the first. Started by rank 0, told by its stdin.

It computes plan after plan and samples nothing. It ends when the pipe does, at once if it waits
for a plan, else after a moment: whatever it is in the midst of would never end without rank 0.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path

import torch

from worker.logs import set_up_logging
from worker.model.loading import LoadOptions, load
from worker.parallel.frames import Assignment, read_assignment, read_plan
from worker.parallel.group import join, leave
from worker.runner import Runner
from worker.step import StepPlan

log = logging.getLogger("pando.worker.parallel")

LEAVE_S = 3.0


def main() -> int:
    """Runs the rank; returns the exit status."""
    # A terminal's Ctrl-C reaches the ranks too; when they end is for rank 0 to say.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    assignment = read_assignment(sys.stdin.buffer)
    if assignment is None:
        return 0
    set_up_logging(assignment.log_level, assignment.log_format)
    plans: queue.SimpleQueue[StepPlan | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(plans,), daemon=True).start()
    try:
        _compute(assignment, plans)
    except Exception:
        log.critical("rank_failed", extra={"rank": assignment.rank}, exc_info=True)
        return 1
    return 0


def _listen(plans: queue.SimpleQueue[StepPlan | None]) -> None:
    """Hands plans on; after the last one the process has a moment to end by itself."""
    while (plan := read_plan(sys.stdin.buffer)) is not None:
        plans.put(plan)
    plans.put(None)
    time.sleep(LEAVE_S)
    os._exit(0)


def _compute(assignment: Assignment, plans: queue.SimpleQueue[StepPlan | None]) -> None:
    """Loads the rank's shard and computes plans until there are no more."""
    torch.set_num_threads(assignment.threads)
    join(assignment)
    options = LoadOptions(
        num_pages=assignment.num_pages,
        page_size=assignment.page_size,
        member="modules",
        backend=assignment.attention,
        dtype=getattr(torch, assignment.dtype),
        device=assignment.own_device,
        threads=assignment.threads,
        num_ranks=assignment.num_ranks,
        formats=assignment.formats,
    )
    model = load(Path(assignment.folder), options)
    runner = Runner(model, torch.device(assignment.own_device))
    while (plan := plans.get()) is not None:
        runner.compute(plan, _go_on)
    leave()


def _go_on() -> None:
    """Nothing stops a step that the ranks have begun."""


if __name__ == "__main__":
    status = main()
    # Not by way of the interpreter's end: the listening thread holds stdin.
    logging.shutdown()
    os._exit(status)
