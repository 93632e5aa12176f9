"""One value of a program's node on its way out, and what it took."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Protocol

from worker.choice import Choice
from worker.programs.tape import packed
from worker.progress import Progress
from worker.request import FinishReason
from worker.submission import NodeOutput


class Stream(Protocol):
    """One sequence's progress. cached_tokens: of its prompt, once something has come."""

    cached_tokens: int

    async def next(self) -> Progress:
        """Returns what comes next. Raises RequestFailed where nothing will."""


@dataclass(slots=True)
class Tally:
    """Tokens in front of a node's generations, of them cached, and when it began."""

    started_s: float
    prompt_tokens: int = 0
    cached_tokens: int = 0


class Value:
    """One value of a node, as it goes out. text: so far; given: of it, what went out elsewhere."""

    def __init__(self, name: str, index: int, given: str = "") -> None:
        self._name = name
        self._index = index
        self.text = given

    def output(
        self,
        text: str,
        tokens: list[int],
        finish: FinishReason | None,
        tally: Tally,
        now_s: float,
    ) -> NodeOutput:
        """Returns the output for more of its text."""
        self.text += text
        output = NodeOutput(self._name, self._index, text, packed(tokens), finish)
        if finish is None:
            return output
        return replace(
            output,
            prompt_tokens=tally.prompt_tokens,
            cached_tokens=tally.cached_tokens,
            started_s=tally.started_s,
            ended_s=now_s,
        )


async def outputs(stream: Stream, choice: Choice) -> AsyncIterator[Piece]:
    """What a sequence's tokens give, to the choice's end."""
    while not choice.finished:
        progress = await stream.next()
        last = len(progress.tokens) - 1
        for index, token in enumerate(progress.tokens):
            ends = index == last and not progress.closed
            output = choice.push(token, progress.finish if ends else None)
            if output is not None:
                yield Piece(output.text, output.tokens, output.finish)
        if progress.closed and not choice.finished:
            output = choice.close()
            yield Piece(output.text, output.tokens, output.finish)


@dataclass(frozen=True, slots=True)
class Piece:
    """What new tokens give."""

    text: str
    tokens: list[int]
    finish: FinishReason | None
