"""Where one answer stands in its grammar: tokens in, what may follow out.

Forced text has one way to be written: where the grammar leaves one text only, its canonical tokens
are a *run*, and they are the only ones allowed, whether they are sampled one by one or appended at
once. Where runs begin follows from the answer's tokens alone, so a replay finds the same ones.

    grammar   {"name":" . . .      run   [{"] [name]      then a choice of tokens
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from llguidance import LLMatcher

from worker.grammar.compiled import Grammar
from worker.grammar.outlook import Outlook, is_open, single

# A forced text that is longer is encoded in parts, so that no step is held up by it.
PART_BYTES = 1024
# So much of a part's end may have other tokens together with the text behind it.
_MARGIN_BYTES = 64
# Most tokens that are told as forced at once.
MAX_FORCED = 256


class Matcher:
    """One answer's. Used by one thread at a time.

    appends: runs are told as forced; otherwise as masks of one id, token by token.
    """

    def __init__(self, grammar: Grammar, *, appends: bool) -> None:
        self._grammar = grammar
        self._appends = appends
        self._state: LLMatcher | None = None
        self._run: deque[int] = deque()
        self._has_looked = False

    def advance(self, tokens: Sequence[int]) -> Outlook:
        """Takes the answer's next tokens, without those told as forced; returns what follows."""
        if self._state is None:
            self._state = self._grammar.base.deep_copy()
        state = self._state
        for token in tokens:
            self._look(state)
            if not self._take(state, token):
                return Outlook(failure=self._grammar.failure(state))
        return self._outlook(state)

    def _outlook(self, state: LLMatcher) -> Outlook:
        forced: list[int] = []
        self._look(state)
        while self._run and self._appends:
            if len(forced) >= MAX_FORCED:
                return Outlook(tuple(forced))
            token = self._run[0]
            if not self._take(state, token):
                return Outlook(tuple(forced), failure=self._grammar.failure(state))
            forced.append(token)
            self._look(state)
        grammar = self._grammar
        if self._run:
            return Outlook(mask=single(self._run[0], grammar.tokens.num_bytes))
        return self._behind(state, tuple(forced))

    def _behind(self, state: LLMatcher, forced: tuple[int, ...]) -> Outlook:
        """What follows where nothing is forced."""
        if state.is_stopped():
            return self._ended(state, forced)
        mask = self._grammar.masked(state.compute_bitmask())
        if state.is_error() or not is_open(mask):
            return self._ended(state, forced)
        return Outlook(forced, mask, may_end=state.is_accepting())

    def _ended(self, state: LLMatcher, forced: tuple[int, ...]) -> Outlook:
        if state.is_error() or not state.is_accepting():
            return Outlook(forced, failure=self._grammar.failure(state))
        return Outlook(forced, ended=True)

    def _look(self, state: LLMatcher) -> None:
        """Finds the run that begins here, once."""
        if self._run or self._has_looked:
            return
        self._has_looked = True
        if not state.is_stopped():
            self._run.extend(self._forced(state))

    def _take(self, state: LLMatcher, token: int) -> bool:
        if self._run and self._run.popleft() != token:
            self._run.clear()
        self._has_looked = False
        return state.consume_token(token)

    def _forced(self, state: LLMatcher) -> list[int]:
        """The canonical tokens of the forced text, but for what may join with what follows."""
        text = state.compute_ff_bytes()
        if len(text) <= PART_BYTES:
            run = state.compute_ff_tokens() if text else []
        else:
            run = self._grammar.tokens.beginning(text[:PART_BYTES], PART_BYTES - _MARGIN_BYTES)
        stop = next((n for n, one in enumerate(run) if one in self._grammar.ends), len(run))
        return run[:stop]
