"""Sequences whose answer must conform to a grammar, between scheduler and grammars (step 8).

    begin -> (outlook -> sample -> advance) ... -> forget

A sequence without an outlook samples nothing: it waits outside the queue, or sits the step out.
What its grammar forces is appended as soon as it is known; where logprobs or scores are asked for,
it is sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from worker.errors import RequestFailed
from worker.grammar.masks import Masks
from worker.grammar.matcher import Matcher
from worker.grammar.outlook import Outlook
from worker.request import FinishReason
from worker.sequence import Sequence, unpack_tokens


@dataclass(frozen=True, slots=True)
class Followed:
    """What an outlook did to its sequence. tokens: appended. finish, failure: it has ended so.

    closed: by its grammar, not by its last token.
    """

    tokens: tuple[int, ...] = ()
    finish: FinishReason | None = None
    closed: bool = False
    failure: RequestFailed | None = None

    @property
    def is_end(self) -> bool:
        """Whether the sequence has ended."""
        return self.finish is not None or self.failure is not None


class Guidance:
    """Used by the engine's thread only. appends: forced text is appended, not sampled."""

    def __init__(self, masks: Masks, *, appends: bool = True) -> None:
        self._masks = masks
        self._appends = appends
        self.take = masks.take
        self.take_seconds = masks.take_seconds
        self.start = masks.start
        self.close = masks.close

    def wake(self, on_news: Callable[[], object]) -> None:
        """Names what is called, in another thread, when there is something to take."""
        self._masks.on_news = on_news

    @property
    def has_news(self) -> bool:
        """Whether there is something to take."""
        return self._masks.has_news

    def wait(self, seconds: float) -> None:
        """Returns when every outlook has come that was asked for, or after so long."""
        self._masks.wait(seconds)

    def begin(self, sequence: Sequence) -> None:
        """Asks for the first outlook of a sequence that has a grammar."""
        spec = sequence.spec
        if spec.grammar is not None:
            plain = spec.top_logprobs is None and not spec.score_prompt
            sequence.matcher = Matcher(spec.grammar, appends=self._appends and plain)
            self._ask(sequence, unpack_tokens(spec.output))

    def advance(self, sequence: Sequence, token: int) -> None:
        """Asks what follows a token that was sampled."""
        if sequence.matcher is not None:
            self._ask(sequence, [token])

    def follow(self, sequence: Sequence, outlook: Outlook) -> Followed:
        """Takes over an outlook that has come."""
        tokens = []
        for token in outlook.forced:
            tokens.append(token)
            finish = sequence.append(token)
            if finish is not None:
                return Followed(tuple(tokens), finish)
        if outlook.failure is not None:
            return Followed(tuple(tokens), failure=outlook.failure)
        if outlook.ended:
            return Followed(tuple(tokens), FinishReason.STOP, closed=True)
        if outlook.is_partial:
            self._ask(sequence, [])
        else:
            sequence.outlook = outlook
        return Followed(tuple(tokens))

    def forget(self, sequence: Sequence) -> None:
        """The sequence has ended."""
        if sequence.matcher is not None:
            self._masks.forget(sequence.spec.id)

    def _ask(self, sequence: Sequence, tokens: list[int]) -> None:
        assert sequence.matcher is not None
        sequence.outlook = None
        self._masks.ask(sequence.spec.id, sequence.matcher, tokens)
