"""One sequence in the engine: what was asked, and how far it has come.

tokens   |<------- prompt ------->|<- output ->|
         |<----- computed ----->|<- remaining ->|
         K/V is in the pages      at least 1 while the sequence lives
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from worker.cache.interface import TOKEN_BYTES, SequencePages
from worker.cache.scope import CacheScope
from worker.dflash import Dflash, Mode
from worker.grammar.compiled import Grammar
from worker.grammar.matcher import Matcher
from worker.grammar.outlook import Outlook, closed, is_open, opened
from worker.request import UNSCORED, FinishReason, Sampling, Stopping, TokenScore
from worker.step import SampleRow


def pack_tokens(ids: list[int]) -> bytes:
    """Returns ids as packed little-endian int32."""
    return array("i", ids).tobytes()


def unpack_tokens(packed: bytes) -> list[int]:
    """Returns the ids of packed int32."""
    ids = array("i")
    ids.frombytes(packed)
    return ids.tolist()


@dataclass(frozen=True, slots=True)
class BoundaryPosition:
    """A boundary that the gateway named, and how many prompt tokens lie before it."""

    digest: bytes
    num_tokens: int


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """One choice of one request, as the engine takes it. id is never reused in a process.

    output: what another worker has generated of it, packed; the sequence goes on behind it. It is
    output in every respect but that it is not reported again. rank: a higher one is served sooner.
    score_prompt: whether the scores of the prompt's tokens are wanted, from the scored_from-th on,
    at least 1. grammar: what its text conforms to; None: it is free. dflash: what the request
    wishes; None: as the worker is set.
    """

    id: int
    scope: CacheScope
    prompt: bytes
    sampling: Sampling
    stopping: Stopping
    choice: int = 0
    top_logprobs: int | None = None
    boundaries: tuple[BoundaryPosition, ...] = ()
    output: bytes = b""
    rank: int = 0
    score_prompt: bool = False
    scored_from: int = 1
    grammar: Grammar | None = None
    dflash: Mode | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """A sequence's life in the engine. Written by the scheduler only.

    held is set while it runs. cached_tokens: prompt tokens taken from the cache at its first
    admission, None before it. arrived: tokens that the engine had computed when it came.
    planned: tokens that the step under way computes. is_awaited: others may wait for its next page.
    scores: of the prompt's second token and those behind it, as far as known; scores_given: they
    have been told. matcher: where its text stands in its grammar. outlook: what may be sampled
    next; None with a matcher: not known yet. exact_len: so many of its first tokens were computed
    over all of their context; None: all of them.
    """

    spec: SequenceSpec
    tokens: bytearray = field(init=False)
    held: SequencePages | None = None
    computed: int = 0
    planned: int = 0
    cached_tokens: int | None = None
    arrived: int | None = None
    is_awaited: bool = False
    scores: list[TokenScore] = field(default_factory=list)
    scores_given: bool = False
    num_boundaries_stored: int = 0
    matcher: Matcher | None = None
    outlook: Outlook | None = None
    exact_len: int | None = None

    def __post_init__(self) -> None:
        self.tokens = bytearray(self.spec.prompt + self.spec.output)
        self.scores = [UNSCORED] * (self.spec.scored_from - 1)

    def exact(self, num_tokens: int) -> int:
        """How many of its first num_tokens others may take from it."""
        return num_tokens if self.exact_len is None else min(num_tokens, self.exact_len)

    @property
    def num_tokens(self) -> int:
        """Prompt and output so far."""
        return len(self.tokens) // TOKEN_BYTES

    @property
    def prompt_len(self) -> int:
        """Tokens of the prompt."""
        return len(self.spec.prompt) // TOKEN_BYTES

    @property
    def output_len(self) -> int:
        """Tokens generated so far, here and before."""
        return self.num_tokens - self.prompt_len

    @property
    def remaining(self) -> int:
        """Tokens whose K/V is not computed yet."""
        return self.num_tokens - self.computed

    @property
    def may_sample(self) -> bool:
        """Whether it is known what the next token may be."""
        return self.matcher is None or self.outlook is not None

    @property
    def computable(self) -> int:
        """Tokens that may be computed now: the last one's step samples.

        A step scores all of a sequence's tokens or none, so it ends where scores begin.
        """
        unscored = self.spec.scored_from - 1 - self.computed
        if self.wants_scores and unscored > 0:
            return unscored
        return self.remaining if self.may_sample else self.remaining - 1

    @property
    def wants_scores(self) -> bool:
        """Whether scores are asked for and not all are known."""
        wanted = self.spec.score_prompt and not self.scores_given
        return wanted and len(self.scores) < self.prompt_len - 1

    @property
    def scores_next(self) -> bool:
        """Whether its next step scores."""
        return self.wants_scores and self.computed >= self.spec.scored_from - 1

    def take_scores(self) -> tuple[TokenScore, ...] | None:
        """Returns the prompt's scores the first time that they are complete and wanted."""
        if not self.spec.score_prompt or self.scores_given:
            return None
        self.scores_given = True
        return tuple(self.scores[self.spec.scored_from - 1 :])

    def targets(self, start: int, end: int) -> bytes:
        """Prompt tokens that follow those at [start, end), packed, where scores are wanted."""
        if not self.scores_next:
            return b""
        stop = min(end + 1, self.prompt_len)
        return bytes(self.tokens[(start + 1) * TOKEN_BYTES : stop * TOKEN_BYTES])

    def budget(self, dflash: Dflash, num_running: int) -> int:
        """The tokens that the planned row may read of its context, 0: all.

        From a row on that may read less, nobody takes what it computes.
        """
        if self.planned > 1 or self.output_len == 0:
            return 0
        context = self.computed + self.planned
        tokens = dflash.budget_for(self.spec.dflash, context, num_running)
        if tokens and self.exact_len is None:
            self.exact_len = self.computed
        return tokens

    def append(self, token: int) -> FinishReason | None:
        """Adds a generated token; returns why the sequence ends with it, if it does."""
        self.tokens += pack_tokens([token])
        return self.spec.stopping.ends(token, self.output_len)

    def sample_row(self) -> SampleRow:
        """Asks for the token behind the last one."""
        spec = self.spec
        early = self.output_len < spec.stopping.min_tokens
        mask = b"" if self.outlook is None else self._mask(self.outlook, early=early)
        return SampleRow(
            sampling=spec.sampling,
            position=self.num_tokens,
            choice=spec.choice,
            history=bytes(self.tokens) if spec.sampling.needs_history else b"",
            prompt_len=self.prompt_len,
            banned=spec.stopping.stop_token_ids if early and not mask else frozenset(),
            top_logprobs=spec.top_logprobs,
            mask=mask,
        )

    def _mask(self, outlook: Outlook, *, early: bool) -> bytes:
        """What may be sampled: no stop token too early, unless the grammar has no other."""
        stops = self.spec.stopping.stop_token_ids
        if early:
            others = closed(outlook.mask, stops)
            return others if is_open(others) else outlook.mask
        if outlook.may_end and self.spec.grammar is not None:
            return opened(outlook.mask, stops & self.spec.grammar.ends)
        return outlook.mask
