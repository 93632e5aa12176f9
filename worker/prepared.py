"""A request between intake and engine: its prompt and rules in tokens, and its sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from worker.cache.interface import TOKEN_BYTES
from worker.cache.scope import Account, CacheScope
from worker.grammar.compiled import Grammar
from worker.parts.manner import WHOLE, Parting
from worker.request import Sampling, Stopping
from worker.sequence import BoundaryPosition, SequenceSpec
from worker.submission import Output, Submission
from worker.text.turns import Opening, TurnIds


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request's prompt and rules in tokens, before its sequences have ids.

    public_tokens: of the prompt, how many of the first are shared by all namespaces. opening: what
    its answers go on from, where they can be remembered. turn: whose ids a chat's last answer has.
    answer: all of it, where nothing has to be computed. grammar: what every choice conforms to.
    parting: how its answers are told apart.
    """

    prompt: bytes
    sampling: Sampling
    stopping: Stopping
    boundaries: tuple[BoundaryPosition, ...]
    public_tokens: int = 0
    opening: Opening | None = None
    turn: TurnIds | None = None
    answer: Output | None = None
    grammar: Grammar | None = None
    parting: Parting = WHOLE

    @property
    def prompt_len(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt) // TOKEN_BYTES


def specs(
    prepared: Prepared, submission: Submission, choices: list[int], ids: Iterator[int]
) -> list[SequenceSpec]:
    """Returns one sequence for each of the choices. Only the first one carries the boundaries."""
    begun = {one.choice: one.tokens for one in submission.resume}
    return [
        SequenceSpec(
            id=next(ids),
            scope=scope_of(submission, prepared.public_tokens),
            prompt=prepared.prompt,
            sampling=prepared.sampling,
            stopping=prepared.stopping,
            choice=choice,
            top_logprobs=submission.top_logprobs,
            boundaries=prepared.boundaries if choice == choices[0] else (),
            output=begun.get(choice, b""),
            rank=submission.share.priority,
            score_prompt=submission.score_prompt and choice == choices[0] and choice not in begun,
            grammar=prepared.grammar,
            dflash=submission.dflash,
        )
        for choice in choices
    ]


def scope_of(submission: Submission, public_tokens: int = 0) -> CacheScope:
    """Returns where a request's pages are shared: within its namespace, and on its account."""
    share = submission.share
    account = Account(submission.namespace, share.weight, share.cache_share, share.cache_cap)
    return CacheScope(submission.namespace, account=account, public_tokens=public_tokens)
