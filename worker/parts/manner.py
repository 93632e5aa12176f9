"""How one model answers chats, and what of it one request needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worker.errors import InvalidRequest
from worker.parts.formats import FORMATS, CallFormat, format_of
from worker.parts.language import Speech, Tools, language_of
from worker.parts.splitter import THINK, THOUGHT, Splitter, Thinking
from worker.parts.telling import told
from worker.submission import ChatInput, Constraint, ToolMode

Message = Mapping[str, Any]
_MARKS = (THINK, THOUGHT, "[ARGS]", *(one.trigger for one in FORMATS))


@dataclass(frozen=True, slots=True)
class Parting:
    """How a request's answers are told apart. shown: special tokens whose text counts."""

    thinking: Thinking = Thinking.NONE
    calls: CallFormat | None = None
    shown: frozenset[int] = frozenset()

    def splitter(self) -> Splitter | None:
        """Returns one for one choice, None: all of it is text."""
        if self.thinking is Thinking.NONE and self.calls is None:
            return None
        return Splitter(self.thinking, self.calls)


WHOLE = Parting()


@dataclass(frozen=True, slots=True)
class Asked:
    """A chat as its template takes it, and its tools where they may be called."""

    messages: list[Any]
    tools: Sequence[Mapping[str, Any]]
    callable: Tools | None = None


@dataclass(frozen=True, slots=True)
class Manner:
    """One model's. thinks, knows_tools: whether its template knows of reasoning, of tools."""

    speech: Speech
    thinks: bool
    knows_tools: bool

    @classmethod
    def of(cls, template: str, special_tokens: Mapping[str, int]) -> Manner:
        """Returns what a chat template's source and the tokenizer's special tokens say."""
        return cls(
            Speech(format_of(template), special_tokens),
            thinks=THOUGHT in template,
            knows_tools="tools" in template,
        )

    def asked(self, chat: ChatInput, messages: list[Any], tools: list[Any]) -> Asked:
        """Returns what the template is given. Raises InvalidRequest for a tool that is none."""
        functions = [_function(tool, f"tools[{place}]") for place, tool in enumerate(tools)]
        shown = [_without_strict(tool) for tool in tools]
        may_call = bool(tools) and chat.tool_choice.mode is not ToolMode.NONE
        named = Tools(functions, chat.tool_choice) if may_call else None
        if named is not None and not named.named:
            raise InvalidRequest("tool_choice", f"No tool is called {chat.tool_choice.name!r}.")
        if self.knows_tools:
            return Asked(messages, shown, named)
        dicts = [one for one in messages if isinstance(one, dict)]
        if len(dicts) < len(messages):  # refused where messages are read
            return Asked(messages, [], named)
        return Asked(list(told(dicts, shown)), [], named)

    def parted(
        self, chat: ChatInput, asked: Asked, tail: str, constraint: Constraint | None
    ) -> tuple[Parting, Constraint | None]:
        """Returns how answers are told apart, and what they may say.

        tail: the prompt's last characters. Raises InvalidRequest.
        """
        thinking = self._thinking(tail)
        language = language_of(self.speech, asked.callable, constraint, thinking)
        special = self.speech.special_tokens
        calls = self.speech.calls if asked.callable is not None else None
        apart = Thinking.NONE if chat.keep_reasoning else thinking
        is_whole = apart is Thinking.NONE and calls is None
        marks = () if is_whole else (one for one in _MARKS if one in special)
        return Parting(apart, calls, frozenset(special[one] for one in marks)), language

    def _thinking(self, tail: str) -> Thinking:
        if not self.thinks:
            return Thinking.NONE
        tail = tail.rstrip()
        if tail.endswith(THINK):
            return Thinking.BEGUN
        return Thinking.NONE if tail.endswith(THOUGHT) else Thinking.OPEN


def _function(tool: Any, place: str) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest("tools", f"{place} must be a function with a name.")
    if not isinstance(function.get("parameters"), dict | None):
        raise InvalidRequest("tools", f"{place}.function.parameters must be a JSON schema.")
    return function


def _without_strict(tool: dict[str, Any]) -> dict[str, Any]:
    """As templates show it: how its arguments are checked is no matter of the model's."""
    function: dict[str, Any] = tool["function"]
    kept = {key: value for key, value in function.items() if key != "strict"}
    return {**tool, "function": kept}
