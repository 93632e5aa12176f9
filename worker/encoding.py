"""The runner of an encoder: one text after the other, no pages (step 10 of a request's path)."""

from __future__ import annotations

from collections.abc import Callable

from worker.model.encoder import Encoder
from worker.sequence import unpack_tokens
from worker.step import StepPlan, StepResult


class EncoderRunner:
    """A StepRunner whose plans hold whole prompts. Used by the engine's thread only."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def run(self, plan: StepPlan, checkpoint: Callable[[], None]) -> StepResult:
        """Returns the values of every row; calls checkpoint before each."""
        values: dict[int, tuple[float, ...]] = {}
        for row in plan.rows:
            assert row.sample is not None, "an encoder computes whole prompts"
            checkpoint()
            values[row.sequence_id] = self._encoder.values(unpack_tokens(row.tokens))
        return StepResult([], values=values)
