"""One request's way out: tokens to text, stop strings, usage (step 11 of a request's path)."""

from __future__ import annotations

from dataclasses import dataclass, field

from worker.request import FinishReason, TokenLogprobs
from worker.scheduler import Progress
from worker.sequence import SequenceSpec
from worker.submission import ChatInput, Output, StopRules, Submission, Usage
from worker.text.detokenizer import Detokenizer
from worker.text.stops import StopMatcher
from worker.text.tokenizer import Tokenizer


@dataclass(slots=True)
class _Choice:
    """A choice under way; num_tokens counts what was generated."""

    index: int
    detokenizer: Detokenizer
    stops: StopMatcher
    num_tokens: int = 0
    finished: bool = False


@dataclass(slots=True)
class RequestStream:
    """All choices of one request. Used on the asyncio side only."""

    specs: list[SequenceSpec]
    rules: StopRules
    cached_tokens: int = 0
    _choices: dict[int, _Choice] = field(default_factory=dict)

    @classmethod
    def open(
        cls, specs: list[SequenceSpec], submission: Submission, tokenizer: Tokenizer
    ) -> RequestStream:
        """Returns the stream of a request that is about to enter the engine.

        A chat's answer is a text of its own; a completion goes on with the prompt's.
        """
        rules = submission.rules
        stream = cls(specs, rules)
        chat = isinstance(submission.prompt, ChatInput)
        opened = Detokenizer if chat else Detokenizer.after_text
        for spec in specs:
            stops = StopMatcher(rules.stop, rules.include_stop)
            detokenizer = opened(tokenizer)
            stream._choices[spec.id] = _Choice(spec.choice, detokenizer, stops)
        return stream

    @property
    def finished(self) -> bool:
        """Whether every choice has ended."""
        return all(choice.finished for choice in self._choices.values())

    @property
    def unfinished_ids(self) -> list[int]:
        """Sequences that may still be in the engine."""
        return [one for one, choice in self._choices.items() if not choice.finished]

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        generated = sum(choice.num_tokens for choice in self._choices.values())
        prompt_len = len(self.specs[0].prompt) // 4
        return Usage(prompt_len, self.cached_tokens, generated)

    def admitted(self, sequence_id: int, cached_tokens: int) -> None:
        """Notes the cache's share of the prompt; the first choice is the one that counts."""
        if sequence_id == self.specs[0].id:
            self.cached_tokens = cached_tokens

    def push(self, progress: Progress) -> Output | None:
        """Returns what one new token gives the client; None when its choice has ended already.

        Where output.stop is set, the engine does not know yet that the choice has ended.
        """
        choice = self._choices[progress.sequence_id]
        if choice.finished:
            return None
        choice.num_tokens += 1
        text, stop = self._text(choice, progress)
        finish = FinishReason.STOP if stop is not None else progress.finish
        choice.finished = finish is not None
        logprobs: list[TokenLogprobs] = [] if progress.logprobs is None else [progress.logprobs]
        return Output(choice.index, text, [progress.token], logprobs, finish, stop)

    def _text(self, choice: _Choice, progress: Progress) -> tuple[str, str | None]:
        by_token = progress.finish is FinishReason.STOP
        text = "" if by_token else choice.detokenizer.push([progress.token])
        ended = progress.finish is not None
        if ended:
            text += choice.detokenizer.flush()
        if choice.num_tokens <= self.rules.min_tokens:
            return text, None
        released = choice.stops.push(text)
        if ended and released.stop is None:
            rest = choice.stops.flush()
            return released.text + rest.text, rest.stop
        return released.text, released.stop
