"""One choice of a request on its way out: tokens to text, stop strings, its end (step 11).

A choice that another worker began is replayed: the same tokens through the same detokenizer and
stop strings leave the choice as it stood there, in the middle of a character or of a stop string.

    other worker   text given out ------------->|   held back there   |
    here           replayed text  ------------->|<------- owed ------>|<- still held ->|
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from worker.errors import InvalidRequest
from worker.parts.splitter import Splitter
from worker.request import FinishReason, Stopping, TokenLogprobs
from worker.sequence import unpack_tokens
from worker.submission import Output, Resumed, StopRules
from worker.text.detokenizer import Detokenizer
from worker.text.stops import StopMatcher


@dataclass(slots=True)
class Choice:
    """A choice under way; num_tokens counts what was generated, here and before.

    splitter: tells its text apart; None: it is only text. owed: text of a replay that was not given
    out; it leaves with the next output. tokens, given: all that was generated, and the text that
    the client has of it, in pieces. skipped: characters still to come that are no part of it.
    """

    index: int
    detokenizer: Detokenizer
    stops: StopMatcher
    splitter: Splitter | None = None
    min_tokens: int = 0
    num_tokens: int = 0
    finished: bool = False
    owed: str = ""
    tokens: list[int] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    num_chars: int = 0
    skipped: int = 0

    @classmethod
    def open(
        cls,
        index: int,
        rules: StopRules,
        detokenizer: Detokenizer,
        splitter: Splitter | None = None,
        skipped: int = 0,
    ) -> Choice:
        """Returns a choice that has no token yet. Raises InvalidRequest for an empty stop.

        skipped: characters that its tokens begin with, and that are no part of its text.
        """
        stops = StopMatcher(rules.stop, rules.include_stop)
        return cls(index, detokenizer, stops, splitter, rules.min_tokens, skipped=skipped)

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
        self.tokens.append(token)
        reason = FinishReason.STOP if stop is not None else finish
        output = self._given_out(text, reason, stop)
        return replace(output, tokens=[token], logprobs=[] if logprobs is None else [logprobs])

    def close(self) -> Output:
        """Ends the choice where its grammar does; its tokens are all shown."""
        text, stop = self._text([], FinishReason.STOP)
        return self._given_out(text, FinishReason.STOP, stop)

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
        if self.splitter is not None:
            self.splitter.push(text[: resumed.text_chars])
        reason = FinishReason.STOP if stop is not None else finish
        return None if reason is None else self._given_out("", reason, stop)

    def _given_out(self, text: str, reason: FinishReason | None, stop: str | None) -> Output:
        """Returns the next text, what is owed in front of it, told apart."""
        text, self.owed = self.owed + text, ""
        self._give(text)
        self.finished = reason is not None
        output = Output(self.index, text, [], finish=reason, stop=stop, text_chars=self.num_chars)
        if self.splitter is None:
            return output
        pieces = self.splitter.push(text)
        if self.finished:
            pieces += self.splitter.flush()
        calls = tuple(pieces.calls)
        return replace(output, text=pieces.text, reasoning=pieces.reasoning, tool_calls=calls)

    def _give(self, text: str) -> None:
        self.given.append(text)
        self.num_chars += len(text)

    def _counted(self, text: str) -> str:
        """Returns the text without what is skipped of it."""
        cut = min(self.skipped, len(text))
        self.skipped -= cut
        return text[cut:]

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
            if early < max(len(tokens), 1):
                bound += rest
            else:
                free += rest
        free, bound = self._counted(free), self._counted(bound)
        released = self.stops.push(bound)
        if finish is None or released.stop is not None:
            return free + released.text, released.stop
        last = self.stops.flush()
        return free + released.text + last.text, last.stop


def joined(outputs: Iterable[Output]) -> Output | None:
    """Returns a choice's outputs, one behind the other, as one; None: there are none."""
    whole: Output | None = None
    for output in outputs:
        whole = (
            output
            if whole is None
            else replace(
                output,
                text=whole.text + output.text,
                tokens=whole.tokens + output.tokens,
                logprobs=whole.logprobs + output.logprobs,
                reasoning=whole.reasoning + output.reasoning,
                tool_calls=whole.tool_calls + output.tool_calls,
            )
        )
    return whole


def _until_end(tokens: list[int], stopping: Stopping) -> tuple[list[int], FinishReason | None]:
    """Returns the tokens as far as the first one that stops, and why they end, if they do."""
    for count, token in enumerate(tokens, start=1):
        if stopping.ends(token, count) is FinishReason.STOP:
            return tokens[:count], FinishReason.STOP
    return tokens, FinishReason.LENGTH if len(tokens) >= stopping.max_tokens else None
