"""All that crosses the torch line: `StepPlan` down to the runner, `StepResult` back up.

Tokens travel as packed little-endian int32 (`bytes`), page tables as lists of ints.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from worker.request import Sampling, TokenLogprobs, TokenScore


@dataclass(frozen=True, slots=True)
class SampleRow:
    """Asks for one new token after a row's last position.

    position: index that the new token will have. choice: which of the request's n this is.
    history: prompt + output so far, packed (only where a penalty needs it, else empty);
    prompt_len: how many of them are prompt. banned: ids that may not be sampled now.
    top_logprobs: None for no logprobs, else how many alternatives. mask: packed bits, lowest first,
    of the only ids that may be sampled; empty: of all.
    """

    sampling: Sampling
    position: int
    choice: int = 0
    history: bytes = b""
    prompt_len: int = 0
    banned: frozenset[int] = frozenset()
    top_logprobs: int | None = None
    mask: bytes = b""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One sequence's part of a step.

        tokens    the ids at positions [start, start + len(tokens) // 4)
        table     its pages, enough for those positions

    sample: set when the step reaches the sequence's last known token. targets: packed ids of the
    tokens that follow the row's first ones, whose scores are wanted; empty: of none. budget: tokens
    of its context that a row of one token reads at most (dflash); 0: all.
    """

    sequence_id: int
    tokens: bytes
    start: int
    table: list[int]
    sample: SampleRow | None = None
    targets: bytes = b""
    budget: int = 0


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What the runner does in one step: poison, then copy pages, then one forward over all rows.

    copies: (source page, target page). poison: pages to fill with NaN (tests only; else empty).
    """

    rows: list[PlanRow]
    copies: list[tuple[int, int]] = field(default_factory=list)
    poison: list[int] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens that the forward computes."""
        return sum(len(row.tokens) for row in self.rows) // 4


@dataclass(frozen=True, slots=True)
class Sampled:
    """The new token of one sequence."""

    sequence_id: int
    token: int
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """sampled: one entry per plan row that asked for a sample, in the plan's order.

    scored: by sequence, the scores of its row's targets. values: of a model that generates nothing,
    in place of samples: by sequence, its score or its embedding.
    """

    sampled: list[Sampled]
    scored: dict[int, list[TokenScore]] = field(default_factory=dict)
    values: dict[int, tuple[float, ...]] = field(default_factory=dict)
