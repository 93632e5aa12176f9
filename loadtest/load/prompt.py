"""What is sent: requests without a model's name, in conversations that keep their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

Message: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request. body: messages and tools, or a plain prompt, as JSON will say it.

    answers: places of the messages that stand for what the model said in earlier turns. at_s: when
    it was recorded, from the beginning; None where nothing was.
    """

    conversation: str
    turn: int
    tenant: str
    body: Mapping[str, Any]
    output_tokens: int
    answers: tuple[int, ...] = ()
    at_s: float | None = None

    @property
    def path(self) -> str:
        """The endpoint that takes it."""
        return "/v1/chat/completions" if "messages" in self.body else "/v1/completions"


# In the order of its turns.
Conversation: TypeAlias = tuple[Prompt, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """new: what the client adds. answer: what stands for the model's answer in later turns."""

    new: tuple[Message, ...]
    answer: Message
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Opening:
    """What a conversation begins with."""

    tenant: str
    messages: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()


def dialogue(name: str, opening: Opening, turns: Sequence[Turn]) -> Conversation:
    """Returns the requests of one conversation: each repeats all before it and adds its turn."""
    history = list(opening.messages)
    answers: list[int] = []
    prompts = []
    for number, turn in enumerate(turns):
        history += turn.new
        body: dict[str, Any] = {"messages": list(history)}
        if opening.tools:
            body["tools"] = list(opening.tools)
        prompts.append(
            Prompt(name, number, opening.tenant, body, turn.output_tokens, tuple(answers))
        )
        answers.append(len(history))
        history.append(turn.answer)
    return tuple(prompts)


def plain(name: str, tenant: str, text: str, output_tokens: int) -> Conversation:
    """Returns a conversation of one plain prompt."""
    return (Prompt(name, 0, tenant, {"prompt": text}, output_tokens),)


def with_answers(prompt: Prompt, said: Sequence[str]) -> Prompt:
    """Returns the prompt with what the model really said in place of what was written for it.

    An answer that calls tools stays as it was written, as the results behind it belong to it.
    """
    messages = list(prompt.body["messages"])
    for place, text in zip(prompt.answers, said, strict=True):
        if "tool_calls" not in messages[place]:
            messages[place] = {**messages[place], "content": text}
    return replace(prompt, body={**prompt.body, "messages": messages})
