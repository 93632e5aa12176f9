"""Rank 0 of a model that is split: the runner that its engine sees, and the ranks' lifetime.

A step is given up at its border only. Between layers one rank alone can't stop: the others would
wait for its part of a sum.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from worker.parallel.frames import Assignment
from worker.parallel.group import join, leave
from worker.parallel.ranks import Ranks
from worker.runner import Runner
from worker.step import StepPlan, StepResult


class LeadRunner:
    """A StepRunner: every rank computes the plan, and this one samples."""

    def __init__(self, runner: Runner, ranks: Ranks) -> None:
        self._runner = runner
        self._ranks = ranks

    def run(self, plan: StepPlan, checkpoint: Callable[[], None]) -> StepResult:
        """Returns the samples; calls checkpoint once, before anyone has begun.

        Raises RankLost where the ranks are no longer in step.
        """
        checkpoint()
        with self._ranks.step(plan):
            logits = self._runner.compute(plan, _go_on)
            if logits.is_cuda:  # what went wrong between the ranks shows here, not in the sampler
                torch.cuda.synchronize(logits.device)
        return self._runner.draw(plan, logits)


@contextmanager
def leading(assignment: Assignment) -> Iterator[Ranks]:
    """A context in which the other ranks run, and this process is rank 0 of their group.

    assignment: rank 0's, but for the store. Within, every rank has to load the model. Raises
    RankLost when one ends, UnsupportedModel when transformers would take another device.
    """
    with tempfile.TemporaryDirectory(prefix="pando-ranks-") as folder:
        own = replace(assignment, store=str(Path(folder) / "store"))
        ranks = Ranks([replace(own, rank=rank) for rank in range(1, own.num_ranks)])
        try:
            with ranks.loading():
                join(own)
            yield ranks
        finally:
            ranks.dismiss()
            leave()
            ranks.close()


def _go_on() -> None:
    """Nothing stops a step that the ranks have begun."""
