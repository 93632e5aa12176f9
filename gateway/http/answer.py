"""A request's outputs in OpenAI's form, all at once or event by event.

    whole             one JSON object
    events, tail      a stream of server-sent events

The members: `chat_answer`, `completion_answer`, `responses_answer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from msgspec import Struct

from gateway.errors import GatewayError, public_body
from gateway.request import Output, PromptScore, TokenLogprobs, ToolCallDelta, Usage

KEEP_ALIVE = b": keep-alive\n\n"
END = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Heading:
    """What every object of one answer carries. model: the name that the client asked for.

    service_tier: the one that it got; None: it named none.
    """

    id: str
    created: int
    model: str
    service_tier: str | None = None


class Answer(Protocol):
    """One request's outputs in OpenAI's form."""

    def events(self, outputs: Iterable[Output]) -> bytes:
        """The outputs as events of a stream, in one piece; empty if there is nothing to tell."""
        ...

    def tail(self, usage: Usage) -> bytes:
        """The events after the last output."""
        ...

    def failure(self, error: GatewayError) -> bytes:
        """The last event of a stream that failed."""
        ...

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """The whole answer as one JSON object."""
        ...


@dataclass(slots=True)
class Call:
    """A tool call as far as it came."""

    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Gathered:
    """All outputs of one choice. scores, prompt_text: of the prompt that it answers."""

    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, Call] = field(default_factory=dict)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    scores: tuple[PromptScore, ...] = ()
    prompt_text: str = ""
    finish_reason: str | None = None

    def take(self, output: Output) -> None:
        """More of it."""
        self.texts.append(output.text)
        self.reasoning.append(output.reasoning)
        for delta in output.tool_calls:
            self._take_call(delta)
        self.logprobs.extend(output.logprobs)
        self.scores = output.prompt_scores or self.scores
        self.prompt_text = output.prompt_text or self.prompt_text
        if output.finish_reason is not None:
            self.finish_reason = output.finish_reason.value

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(self.texts)

    def _take_call(self, delta: ToolCallDelta) -> None:
        call = self.calls.setdefault(delta.index, Call())
        call.name = call.name or delta.name
        call.arguments.append(delta.arguments)


def gathered(outputs: Iterable[Output]) -> list[tuple[int, Gathered]]:
    """The outputs by choice, in order."""
    choices: dict[int, Gathered] = {}
    for output in outputs:
        choices.setdefault(output.choice, Gathered()).take(output)
    return sorted(choices.items(), key=lambda choice: choice[0])


def event(value: Struct, name: str | None = None) -> bytes:
    """One server-sent event."""
    data = b"data: %b\n\n" % msgspec.json.encode(value)
    return data if name is None else b"event: %b\n%b" % (name.encode(), data)


def error_event(error: GatewayError) -> bytes:
    """The last event of a stream that failed."""
    return event(public_body(error))
