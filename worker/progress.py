"""What steps do for sequences, as the scheduler tells it. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from worker.errors import RequestFailed
from worker.request import FinishReason, TokenLogprobs, TokenScore


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step did for one sequence. prompt_scores: with its first token, if wanted.

    tokens: several where a grammar forces them, none where it only ends. logprobs: one per token,
    if wanted. closed: the grammar ended it, not its last token.
    """

    sequence_id: int
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish: FinishReason | None = None
    prompt_scores: tuple[TokenScore, ...] | None = None
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Valued:
    """A sequence that ended with what was wanted as values."""

    sequence_id: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the process started. cached + computed prompt tokens make up prompt_tokens exactly.

    computed_tokens: all that steps computed, again after preemption too. copied_pages: begun by a
    copy. steps: those that were computed. forced_tokens: of generated_tokens, those that grammars
    forced and nobody sampled. sat_out: steps without a sequence whose mask was not ready.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    computed_tokens: int = 0
    copied_pages: int = 0
    preemptions: int = 0
    steps: int = 0
    forced_tokens: int = 0
    sat_out: int = 0


@dataclass(slots=True)
class News:
    """What grammars did between two steps. failures: sequences that they ended, and why."""

    progress: list[Progress] = field(default_factory=list)
    failures: dict[int, RequestFailed] = field(default_factory=dict)

    @property
    def is_urgent(self) -> bool:
        """Whether a sequence has ended, which nobody waits a step to hear."""
        return bool(self.failures) or any(one.finish is not None for one in self.progress)
