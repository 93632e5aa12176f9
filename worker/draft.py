"""The step under way, while it is planned and until it is over (step 8)."""

from __future__ import annotations

from dataclasses import dataclass, field

from worker.sequence import Sequence
from worker.step import PlanRow


@dataclass(slots=True)
class Draft:
    """The step under way. budget: tokens that it may still take; scorable: of them, with scores."""

    budget: int
    scorable: int
    num_tokens: int = 0
    rows: list[PlanRow] = field(default_factory=list)
    members: dict[int, Sequence] = field(default_factory=dict)
    copies: list[tuple[int, int]] = field(default_factory=list)

    def room_for(self, sequence: Sequence) -> int:
        """How many of the sequence's tokens it can take."""
        room = min(sequence.computable, self.budget)
        return min(room, self.scorable) if sequence.scores_next else room

    def take(self, sequence: Sequence, count: int) -> None:
        """The step computes the sequence's next `count` tokens."""
        sequence.planned = count
        self.budget -= count
        self.num_tokens += count
        if sequence.scores_next:
            self.scorable -= count
        self.members[sequence.spec.id] = sequence
