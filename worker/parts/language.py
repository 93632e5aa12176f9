"""What a choice may say: calls of tools, a constraint, reasoning in front, as one grammar.

    start: thought? (TEXT | lead call (between call)* close | asked)

With tools, text is free up to the trigger of a call. From there on only calls follow, each with
the name of a tool and arguments that are JSON of its schema. Written in llguidance's Lark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worker.errors import InvalidRequest
from worker.grammar.source import WHITE_SPACE, written
from worker.parts.formats import CallFormat
from worker.parts.splitter import THINK, THOUGHT, Thinking
from worker.submission import Constraint, Language, ToolChoice, ToolMode

_ANY = r"(.|\n)*"
_GAP = r"/[ \n]{0,4}/"
_ASKED = "asked"
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions that may be called, by OpenAI's definitions, and how."""

    functions: Sequence[Mapping[str, Any]]
    choice: ToolChoice

    @property
    def named(self) -> list[Mapping[str, Any]]:
        """Those that may be called."""
        name = self.choice.name
        return [one for one in self.functions if not name or one["name"] == name]


@dataclass(frozen=True, slots=True)
class Speech:
    """How a model writes. special_tokens: their ids, by the texts that plain text cannot hold."""

    calls: CallFormat
    special_tokens: Mapping[str, int]


def language_of(
    speech: Speech, tools: Tools | None, constraint: Constraint | None, thinking: Thinking
) -> Constraint | None:
    """Returns what restricts a choice, None: nothing does. Raises InvalidRequest."""
    if tools is None and (constraint is None or thinking is Thinking.NONE):
        return constraint
    writing = _Writing(speech, thinking)
    bodies = []
    if constraint is not None:
        bodies.append(writing.asked(constraint))
    elif tools is not None and tools.choice.mode is ToolMode.AUTO:
        bodies.append(writing.free())
    if tools is not None:
        leads = tools.choice.mode is ToolMode.AUTO and constraint is None
        bodies.append(writing.calls(tools, leads=leads))
    source = writing.source(" | ".join(bodies))
    if constraint is None:
        return Constraint(Language.GRAMMARS, source, param="tools", ids=writing.ids)
    param = written(constraint).param
    return Constraint(Language.GRAMMARS, source, param=param, ids=writing.ids)


class _Writing:
    """A grammar under way. ids: special tokens that it names."""

    def __init__(self, speech: Speech, thinking: Thinking) -> None:
        self._speech = speech
        self._thinking = thinking
        self._rules: dict[str, str] = {}
        self._nested: list[dict[str, object]] = []
        self.ids: frozenset[int] = frozenset()

    def source(self, body: str) -> str:
        """Returns the whole as a list of grammars, with what may stand in front of the body."""
        self._rules["body"] = body
        begins = {Thinking.NONE: "", Thinking.OPEN: "thought? ", Thinking.BEGUN: "thought "}
        self._rules["start"] = begins[self._thinking] + "body"
        if self._thinking is not Thinking.NONE:
            self._write_thought()
        lark = "".join(f"{name}: {rule}\n" for name, rule in self._rules.items())
        return json.dumps({"grammars": [{"lark_grammar": lark}, *self._nested]})

    def asked(self, constraint: Constraint) -> str:
        """Returns what stands for a constraint. Raises InvalidRequest."""
        text = written(constraint).text
        inner = json.loads(text)["grammars"][0] if text.startswith("{") else {"lark_grammar": text}
        self._nested.append({**inner, "name": _ASKED})
        return f"@{_ASKED}"

    def free(self) -> str:
        """Returns what stands for text without a call."""
        calls = self._speech.calls
        self._rules["TEXT"] = self._outside_thought(rf"/{_ANY}/")
        if calls.opens:
            first = _escaped(calls.trigger)
            self._rules["TEXT"] = self._outside_thought(rf"/([^{first} \n]{_ANY})?/")
        elif calls.trigger not in self._speech.special_tokens:
            holds = rf"/{_ANY}{_escaped(calls.trigger)}{_ANY}/"
            self._rules["TEXT"] += f" & ~{holds}"
        return "TEXT"

    def calls(self, tools: Tools, *, leads: bool) -> str:
        """Returns what stands for calls. leads: text may stand in front of the first."""
        calls, known = self._speech.calls, tools.named
        leads = leads and not calls.opens
        front = calls.behind_trigger if leads else calls.lead + calls.begin
        self._rules["first"] = " | ".join(self._call(front, one, known) for one in known)
        if leads:
            self._write_lead()
        parts = ["lead first" if leads else "first"]
        if not tools.choice.single:
            front = calls.between + calls.begin
            self._rules["next"] = " | ".join(self._call(front, one, known) for one in known)
            parts.append("next*")
        if calls.close:
            parts.append(self._literal(calls.close))
        return " ".join(parts)

    def _call(
        self, front: str, function: Mapping[str, Any], known: Sequence[Mapping[str, Any]]
    ) -> str:
        """A call of one function, with its arguments' rule written once."""
        calls, rule = self._speech.calls, f"args_{known.index(function)}"
        if rule not in self._rules:
            self._rules[rule] = f"%json {json.dumps(_schema(function))}"
        begins = self._literal(front + function["name"] + calls.middle)
        ends = f" {self._literal(calls.end)}" if calls.end else ""
        return f"{begins} {rule}{ends}"

    def _write_lead(self) -> None:
        """Text up to a call's trigger, and the trigger."""
        trigger = self._speech.calls.trigger
        if trigger in self._speech.special_tokens:
            self._rules["AHEAD"] = self._outside_thought(rf"/{_ANY}/")
            self._rules["lead"] = f"AHEAD {self._literal(trigger)}"
            return
        self._rules["lead[lazy]"] = "AHEAD"
        self._rules["AHEAD"] = self._outside_thought(rf"/{_ANY}{_escaped(trigger)}/")

    def _write_thought(self) -> None:
        opened = THINK if self._thinking is Thinking.OPEN else ""
        special = self._speech.special_tokens
        if THOUGHT in special:
            begins = f"{self._literal(opened)} " if opened else ""
            self._rules["thought"] = rf"{begins}/{_ANY}/ {self._literal(THOUGHT)} {_GAP}"
        elif opened in special:
            self._rules["thought"] = f"{self._literal(opened)} thinks {_GAP}"
            self._rules["thinks[lazy]"] = rf"/{_ANY}{_escaped(THOUGHT)}/"
        else:
            self._rules["thought"] = f"thinks {_GAP}"
            self._rules["thinks[lazy]"] = rf"/{_escaped(opened)}{_ANY}{_escaped(THOUGHT)}/"

    def _outside_thought(self, regex: str) -> str:
        """The regex for text that cannot be taken for reasoning."""
        if self._thinking is not Thinking.OPEN or THINK in self._speech.special_tokens:
            return regex
        return rf"{regex} & ~/{_escaped(THINK)}{_ANY}/"

    def _literal(self, text: str) -> str:
        """A fixed text, its special tokens by their ids."""
        special = self._speech.special_tokens
        marks = [
            one for one in (self._speech.calls.trigger, "[ARGS]", THINK, THOUGHT) if one in special
        ]
        if not marks:
            return json.dumps(text, ensure_ascii=False)
        pieces = re.split(f"({'|'.join(map(re.escape, marks))})", text)
        self.ids |= {special[one] for one in pieces if one in marks}
        told = [
            f"<[{special[one]}]>" if one in marks else json.dumps(one, ensure_ascii=False)
            for one in pieces
            if one
        ]
        return " ".join(told)


def _schema(function: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a function's arguments, which are an object. Raises InvalidRequest.

    Without `strict` a keyword that nobody can keep is passed over, as everywhere.
    """
    given = function.get("parameters")
    schema = _NO_ARGUMENTS if given is None else {"type": "object", **given}
    if schema["type"] != "object":
        raise InvalidRequest(
            "tools", f"The parameters of {function['name']!r} must be of the type 'object'."
        )
    options = {
        "whitespace_pattern": WHITE_SPACE,
        "lenient": not function.get("strict"),
    }
    return {**schema, "x-guidance": options}


def _escaped(text: str) -> str:
    """A text within /.../."""
    return re.sub(r"([\\.+*?()|\[\]{}^$/&~#-])", r"\\\1", text)
