"""One choice of a request on its way out: tokens to text, stop strings, its end (step 11).

A choice that another worker began is replayed: the same tokens through the same detokenizer and
stop strings leave the choice as it stood there, in the middle of a character or of a stop string.

    other worker   text given out ------------->|   held back there   |
    here           replayed text  ------------->|<------- owed ------>|<- still held ->|
"""

from __future__ import annotations

from dataclasses import dataclass, field

from worker.errors import InvalidRequest
from worker.request import FinishReason, Stopping, TokenLogprobs
from worker.sequence import unpack_tokens
from worker.submission import Output, Resumed, StopRules
from worker.text.detokenizer import Detokenizer
from worker.text.stops import StopMatcher


@dataclass(slots=True)
class Choice:
    """A choice under way; num_tokens counts what was generated, here and before.

    owed: text of a replay that was not given out; it leaves with the next output. tokens, given:
    all that was generated, and the text that the client has of it, in parts.
    """

    index: int
    detokenizer: Detokenizer
    stops: StopMatcher
    min_tokens: int = 0
    num_tokens: int = 0
    finished: bool = False
    owed: str = ""
    tokens: list[int] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    num_chars: int = 0

    @classmethod
    def open(cls, index: int, rules: StopRules, detokenizer: Detokenizer) -> Choice:
        """Returns a choice that has no token yet. Raises InvalidRequest for an empty stop."""
        stops = StopMatcher(rules.stop, rules.include_stop)
        return cls(index, detokenizer, stops, rules.min_tokens)

    def push(
        self, token: int, finish: FinishReason | None, logprobs: TokenLogprobs | None = None
    ) -> Output | None:
        """Returns what one new token gives the client; None when the choice has ended already.

        Where output.stop is set, the engine does not know yet that the choice has ended.
        """
        if self.finished:
            return None
        text, stop = self._text([token], finish)
        self.num_tokens += 1
        text, self.owed = self.owed + text, ""
        self.tokens.append(token)
        self._give(text)
        reason = FinishReason.STOP if stop is not None else finish
        self.finished = reason is not None
        return Output(
            self.index,
            text,
            [token],
            [] if logprobs is None else [logprobs],
            reason,
            stop,
            text_chars=self.num_chars,
        )

    def replay(self, resumed: Resumed, stopping: Stopping) -> Output | None:
        """Takes up what another worker has given out, and goes on behind it.

        Where that is the choice's end already, returns the output that says so. Tokens behind the
        end are counted only. Raises InvalidRequest where these tokens never made so much text.
        """
        tokens = unpack_tokens(resumed.tokens)
        if resumed.finished:
            self.num_tokens, self.finished = len(tokens), True
            return None
        shown, finish = _until_end(tokens, stopping)
        text, stop = self._text(shown, finish)
        self.num_tokens = len(tokens)
        if resumed.text_chars > len(text):
            raise InvalidRequest(
                "resume",
                f"resume has {resumed.text_chars} characters for choice {self.index}; its tokens "
                f"make {len(text)}.",
            )
        self.owed = text[resumed.text_chars :]
        self.tokens += shown
        self._give(text[: resumed.text_chars])
        reason = FinishReason.STOP if stop is not None else finish
        if reason is None:
            return None
        self.finished = True
        self._give(self.owed)
        return Output(self.index, self.owed, [], [], reason, stop, text_chars=self.num_chars)

    def _give(self, text: str) -> None:
        self.given.append(text)
        self.num_chars += len(text)

    def _text(self, tokens: list[int], finish: FinishReason | None) -> tuple[str, str | None]:
        """Returns the text that the next tokens set free, and the stop string that ended it.

        The first min_tokens tokens can't end the choice. The token that did isn't shown.
        """
        shown = tokens[:-1] if finish is FinishReason.STOP else tokens
        early = max(self.min_tokens - self.num_tokens, 0)
        free = self.detokenizer.push(shown[:early])
        bound = self.detokenizer.push(shown[early:])
        if finish is not None:
            rest = self.detokenizer.flush()
            if early < len(tokens):
                bound += rest
            else:
                free += rest
        released = self.stops.push(bound)
        if finish is None or released.stop is not None:
            return free + released.text, released.stop
        last = self.stops.flush()
        return free + released.text + last.text, last.stop


def _until_end(tokens: list[int], stopping: Stopping) -> tuple[list[int], FinishReason | None]:
    """Returns the tokens as far as the first one that stops, and why they end, if they do."""
    for count, token in enumerate(tokens, start=1):
        if stopping.ends(token, count) is FinishReason.STOP:
            return tokens[:count], FinishReason.STOP
    return tokens, FinishReason.LENGTH if len(tokens) >= stopping.max_tokens else None
