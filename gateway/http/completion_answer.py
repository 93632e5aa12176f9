"""Completions: plain text, the prompt in front of it if asked, and the best of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import msgspec
from msgspec import UNSET, UnsetType

from gateway.errors import GatewayError
from gateway.http.answer import END, Gathered, Heading, error_event, event, gathered
from gateway.http.objects import (
    Completion,
    CompletionChoice,
    LegacyLogprobs,
    Offset,
    UsageObject,
    prompt_logprobs,
    text_of,
    usage_object,
    value_of,
)
from gateway.request import Logprob, Output, PromptScore, TokenLogprobs, Usage


@dataclass(frozen=True, slots=True)
class CompletionForm:
    """What of its outputs an answer shows.

    logprobs None: none, else so many alternatives. n: choices per prompt; made: that workers made,
    of which the n with the highest mean logprob are shown. echo: the prompt stands in front.
    prompt_only: nothing else is shown. scores: vLLM's prompt_logprobs were asked for.
    """

    include_usage: bool = False
    logprobs: int | None = None
    n: int = 1
    made: int = 1
    echo: bool = False
    prompt_only: bool = False
    scores: bool = False


class CompletionAnswer:
    """A completion."""

    def __init__(self, heading: Heading, form: CompletionForm):
        self._heading = heading
        self._form = form
        self._usage: UnsetType | None = None if form.include_usage else UNSET
        self._offsets: dict[int, Offset] = {}

    def events(self, outputs: Iterable[Output]) -> bytes:
        """As Answer.events."""
        parts = []
        for output in outputs:
            text, logprobs = self._shown(output)
            if text or logprobs or output.finish_reason is not None:
                reason = None if output.finish_reason is None else output.finish_reason.value
                if self._form.prompt_only and reason is not None:
                    reason = "length"
                choice = CompletionChoice(output.choice, text, logprobs, reason)
                parts.append(event(self._object((choice,), self._usage)))
        return b"".join(parts)

    def tail(self, usage: Usage) -> bytes:
        """As Answer.tail."""
        if self._usage is UNSET:
            return END
        return event(self._object((), usage_object(self._told(usage)))) + END

    def failure(self, error: GatewayError) -> bytes:
        """As Answer.failure."""
        return error_event(error)

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """As Answer.whole."""
        choices = tuple(self._choice(*one) for one in self._best(gathered(outputs)))
        return msgspec.json.encode(self._object(choices, usage_object(self._told(usage))))

    def _told(self, usage: Usage) -> Usage:
        return (
            msgspec.structs.replace(usage, completion_tokens=0) if self._form.prompt_only else usage
        )

    def _shown(self, output: Output) -> tuple[str, LegacyLogprobs | None]:
        """What one output of a stream shows."""
        own = () if self._form.prompt_only else output.logprobs
        text = "" if self._form.prompt_only else output.text
        scores: Sequence[PromptScore] = ()
        if self._form.echo:
            text, scores = output.prompt_text + text, output.prompt_scores
        return text, self._logprobs(output.choice, scores, own)

    def _choice(self, index: int, found: Gathered) -> CompletionChoice:
        form = self._form
        text = "" if form.prompt_only else found.text
        own = [] if form.prompt_only else found.logprobs
        scores: Sequence[PromptScore] = ()
        if form.echo:
            text, scores = found.prompt_text + text, found.scores
        reason = "length" if form.prompt_only else found.finish_reason
        told = prompt_logprobs(found.scores) if form.scores and found.scores else UNSET
        return CompletionChoice(index, text, self._logprobs(index, scores, own), reason, told)

    def _best(self, choices: list[tuple[int, Gathered]]) -> list[tuple[int, Gathered]]:
        """The choices to show, numbered anew where fewer are shown than were made.

        A prompt's text and scores came with one of its choices and belong to all of them.
        """
        made, n = self._form.made, self._form.n
        shown: list[tuple[int, Gathered]] = []
        for first in range(0, len(choices), made):
            of_prompt = [found for _, found in choices[first : first + made]]
            if self._form.echo:
                _share_prompt(of_prompt)
            if made > n:
                of_prompt = sorted(of_prompt, key=_mean_logprob, reverse=True)[:n]
            start = first // made * n
            shown += [(start + place, found) for place, found in enumerate(of_prompt)]
        return shown

    def _object(
        self, choices: tuple[CompletionChoice, ...], usage: UsageObject | UnsetType | None
    ) -> Completion:
        heading = self._heading
        return Completion(heading.id, heading.created, heading.model, choices, usage)

    def _logprobs(
        self, choice: int, scores: Sequence[PromptScore], entries: Sequence[TokenLogprobs]
    ) -> LegacyLogprobs | None:
        if self._form.logprobs is None or not (scores or entries):
            return None
        offset = self._offsets.setdefault(choice, Offset())
        tokens = [score.token for score in scores] + [entry.sampled.token for entry in entries]
        values = [value_of(_scored(score)) if score.rank else None for score in scores]
        tops = [_alternatives(score) for score in scores] + [_top(entry) for entry in entries]
        return LegacyLogprobs(
            tokens=[text_of(token) for token in tokens],
            token_logprobs=values + [value_of(entry.sampled) for entry in entries],
            top_logprobs=tops if self._form.logprobs else None,
            text_offset=[offset.pass_over(token) for token in tokens],
        )


def _share_prompt(choices: list[Gathered]) -> None:
    text = next((found.prompt_text for found in choices if found.prompt_text), "")
    scores = next((found.scores for found in choices if found.scores), ())
    for found in choices:
        found.prompt_text, found.scores = text, scores


def _mean_logprob(found: Gathered) -> float:
    return fmean(entry.sampled.logprob for entry in found.logprobs) if found.logprobs else 0.0


def _scored(score: PromptScore) -> Logprob:
    return Logprob(score.token_id, score.logprob, score.token)


def _alternatives(score: PromptScore) -> dict[str, float] | None:
    """The token, and the most probable one where it is another; None for the first token."""
    if not score.rank:
        return None
    found = {text_of(score.token): value_of(_scored(score))}
    if score.best is not None:
        found.setdefault(text_of(score.best.token), value_of(score.best))
    return found


def _top(entry: TokenLogprobs) -> dict[str, float]:
    return {text_of(other.token): value_of(other) for other in (*entry.top, entry.sampled)}
