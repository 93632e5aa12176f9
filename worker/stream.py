"""One request's way out: all its choices, and its usage (step 11 of a request's path)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from worker.choice import Choice, joined
from worker.parts.manner import WHOLE, Parting
from worker.progress import Progress, Valued
from worker.request import UNSCORED, FinishReason, Stopping
from worker.sequence import SequenceSpec, unpack_tokens
from worker.submission import ChatInput, Output, Prompt, Submission, Usage
from worker.text.detokenizer import Detokenizer
from worker.text.tokenizer import Tokenizer


@dataclass(slots=True)
class RequestStream:
    """All choices of one request. Used on the asyncio side only, once it is open.

    replayed: the ends of choices that another worker left with nothing to compute. echo: the
    prompt's text, where it is still to be given out. is_admitted: cached_tokens is known.
    """

    prompt_len: int
    choices: list[Choice] = field(default_factory=list)
    replayed: list[Output] = field(default_factory=list)
    cached_tokens: int = 0
    is_admitted: bool = False
    echo: str = ""
    _by_sequence: dict[int, Choice] = field(default_factory=dict)
    _first: int | None = None
    _scored: list[int] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        submission: Submission,
        prompt_len: int,
        stopping: Stopping,
        tokenizer: Tokenizer,
        parting: Parting = WHOLE,
    ) -> RequestStream:
        """Returns the stream of a request, what other workers gave out of it replayed.

        A chat's answer is a text of its own; a completion goes on with the prompt's. Of one that
        conforms to something, no space is dropped. Raises InvalidRequest.
        """
        stream = cls(prompt_len)
        own = isinstance(submission.prompt, ChatInput) and submission.constraint is None
        opened = Detokenizer if own else Detokenizer.after_text
        if submission.echo:
            stream.echo = _text_of(submission.prompt, tokenizer)
        resumed = {one.choice: one for one in submission.resume}
        for index in range(submission.n):
            detokenizer = opened(tokenizer, parting.shown)
            choice = Choice.open(index, submission.rules, detokenizer, parting.splitter())
            stream.choices.append(choice)
            if index in resumed:
                output = choice.replay(resumed[index], stopping)
                stream.replayed += [] if output is None else [output]
        return stream

    @classmethod
    def answered(cls, prompt_len: int, answer: Output) -> RequestStream:
        """Returns the stream of a request for which nothing is computed."""
        return cls(prompt_len, replayed=[answer])

    def enter(self, specs: list[SequenceSpec]) -> None:
        """Names the sequences that compute what is open; the first one's share of the cache counts.

        Nothing else comes for this request.
        """
        self._by_sequence = {spec.id: self.choices[spec.choice] for spec in specs}
        self._first = specs[0].id if specs else None
        if any(spec.score_prompt for spec in specs):
            self._scored = unpack_tokens(specs[0].prompt)

    @property
    def open_choices(self) -> list[int]:
        """Choices that have not ended."""
        return [choice.index for choice in self.choices if not choice.finished]

    @property
    def finished(self) -> bool:
        """Whether every choice has ended."""
        return not self.open_choices

    @property
    def unfinished_ids(self) -> list[int]:
        """Sequences that may still be in the engine."""
        return [one for one, choice in self._by_sequence.items() if not choice.finished]

    @property
    def usage(self) -> Usage:
        """Tokens so far, those of other workers among them."""
        generated = sum(choice.num_tokens for choice in self.choices)
        return Usage(self.prompt_len, self.cached_tokens, generated)

    def admitted(self, sequence_id: int, cached_tokens: int) -> None:
        """Notes the cache's share of the prompt; the first sequence is the one that counts."""
        if sequence_id == self._first:
            self.cached_tokens, self.is_admitted = cached_tokens, True

    def valued(self, valued: Valued) -> Output | None:
        """Returns what was wanted as values; None when the choice has ended already."""
        choice = self._by_sequence[valued.sequence_id]
        if choice.finished:
            return None
        choice.finished = True
        return Output(choice.index, "", [], finish=FinishReason.STOP, values=valued.values)

    def push(self, progress: Progress) -> Output | None:
        """Returns what new tokens give the client; None when its choice has ended already."""
        output = joined(self._outputs(progress))
        if output is not None and self.echo and progress.sequence_id == self._first:
            output, self.echo = replace(output, prompt_text=self.echo), ""
        if output is None or progress.prompt_scores is None:
            return output
        scores = list(zip(self._scored, (UNSCORED, *progress.prompt_scores), strict=True))
        return replace(output, prompt_scores=scores)

    def _outputs(self, progress: Progress) -> Iterator[Output]:
        """One for each token, as if it had come alone, and one for a grammar's end."""
        choice = self._by_sequence[progress.sequence_id]
        logprobs = progress.logprobs or (None,) * len(progress.tokens)
        last = len(progress.tokens) - 1
        for index, (token, told) in enumerate(zip(progress.tokens, logprobs, strict=True)):
            ends = index == last and not progress.closed
            output = choice.push(token, progress.finish if ends else None, told)
            if output is not None:
                yield output
        if progress.closed and not choice.finished:
            yield choice.close()


def _text_of(prompt: Prompt, tokenizer: Tokenizer) -> str:
    """Returns the text of a plain prompt; a chat's is the template's own."""
    if isinstance(prompt, bytes):
        detokenizer = Detokenizer(tokenizer)
        return detokenizer.push(unpack_tokens(prompt)) + detokenizer.flush()
    return prompt if isinstance(prompt, str) else ""
