"""The values of routing: what is wanted, where it goes, and why."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from gateway.fleet.workers import Worker
from gateway.request import Boundary
from gateway.routing.cost import Candidate
from gateway.routing.prefix import Chain
from gateway.tenant_config import PolicyConfig


@dataclass(frozen=True, slots=True)
class Want:
    """One prompt that needs a worker. policy None: the fleet's. session: as the client names it."""

    model: str
    tenant: str
    chain: Chain
    policy: PolicyConfig | None = None
    session: str | None = None


class NoCredit(Exception):
    """Workers live that may have the request, and none of them takes one now: it waits."""


class Reason(enum.Enum):
    """Why this worker; the values are in the metrics and in `x-pando-route`."""

    HIT = "hit"  # holds most of the prompt, and waiting for it is worth while
    DIVERTED = "diverted"  # another one holds more, and has too much to do
    MISS = "miss"  # nobody holds much more than the others: the less loaded of two owners
    ONE_CHOICE = "one_choice"  # the same, but views are old: the first owner
    OWNER = "owner"  # of the ring, by the policies that go by it
    PASSED_OVER = "passed_over"  # the owner has too much to do: the next one
    LEAST_LOADED = "least_loaded"
    IN_TURN = "in_turn"


@dataclass(frozen=True, slots=True)
class Decision:
    """A worker, and what else was looked at.

    depth: boundaries of the prompt that it holds; deepest: that any does, where that was looked at.
    """

    worker: Worker
    reason: Reason
    depth: int = 0
    deepest: int = 0
    others: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes.

    matched_tokens: of the prompt, what the worker holds or will hold by then. boundaries: what it
    is asked to name. queued_tokens: before this request. others: who came next, the best first.
    """

    worker: Worker
    reason: Reason
    policy: str
    matched_tokens: int
    prompt_tokens: int
    depth: int = 0
    deepest: int = 0
    queued_tokens: int = 0
    boundaries: tuple[Boundary, ...] = ()
    others: tuple[Candidate, ...] = field(default=(), repr=False)

    @property
    def expected_tokens(self) -> int:
        """Prompt tokens that the worker will compute."""
        return max(self.prompt_tokens - self.matched_tokens, 1)

    def explain(self) -> str:
        """One line for `x-pando-route`.

        policy/reason worker=NAME matched=HELD/PROMPT queued=TOKENS next=NAME:QUEUED+MISSING
        """
        told = [
            f"{self.policy}/{self.reason.value}",
            f"worker={self.worker.name}",
            f"matched={self.matched_tokens}/{self.prompt_tokens}",
            f"queued={self.queued_tokens}",
        ]
        if self.others:
            best = self.others[0]
            told.append(f"next={best.name}:{best.queued_tokens}+{best.missing_tokens}")
        return " ".join(told)
