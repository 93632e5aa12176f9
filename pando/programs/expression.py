"""What is appended to a program's text: gen, select, messages, and what `+` makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pando.programs.checks import (
    METHODS,
    choices_of,
    name_of,
    rule_of,
    sampling_of,
    stops_of,
    whole,
)
from pando.programs.place import mistake, user_place

ROLES = ("system", "user", "assistant")


class Expression:
    """Something that a state can append. `+` puts text and expressions behind one another."""

    __slots__ = ()

    def __add__(self, other: Expression | str) -> Joined:
        return _join(self, other)

    def __radd__(self, other: str) -> Joined:
        return _join(other, self)


@dataclass(frozen=True, slots=True)
class Gen(Expression):
    """Generated text. fields: of the graph's node, those that were given. place: of its call."""

    name: str
    fields: Mapping[str, Any]
    place: str


@dataclass(frozen=True, slots=True)
class Select(Expression):
    """The likeliest of some texts, which may hold values."""

    name: str
    choices: tuple[str, ...]
    method: str
    place: str


@dataclass(frozen=True, slots=True)
class Message(Expression):
    """A chat message."""

    role: str
    content: Expression | str


@dataclass(frozen=True, slots=True)
class Joined(Expression):
    """Pieces behind one another."""

    pieces: tuple[Expression | str, ...]


def _join(*sides: object) -> Joined:
    pieces: list[Expression | str] = []
    for side in sides:
        if isinstance(side, Joined):
            pieces += side.pieces
        elif isinstance(side, Expression | str):
            pieces.append(side)
        else:
            raise mistake(f"{side!r} can't stand beside a gen: text and expressions can.")
    return Joined(tuple(pieces))


def gen(  # noqa: PLR0913 - as SGLang's users know it
    name: str,
    max_tokens: int = 128,
    *,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    stop: str | Sequence[str] | None = None,
    regex: str | None = None,
    choices: Sequence[str] | None = None,
    json_schema: object = None,
    grammar: str | None = None,
    n: int = 1,
    seed: int | None = None,
) -> Expression:
    """Text that the model generates, read as `s[name]`; with choices, a select.

    json_schema: a dict or a pydantic model's class. n: above 1 the value is a list, and the text
    goes on behind the first.
    """
    number = whole("n", n, 1)
    tokens = whole("max_tokens", max_tokens, 1)
    sampling = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p}
    settings = sampling_of({**sampling, "seed": seed})
    rule = rule_of(regex, json_schema, grammar)
    stops = stops_of(stop)
    if choices is not None:
        for field, value in {**settings, **rule, "stop": stops, "n": number - 1}.items():
            if value:
                raise mistake(f"choices and {field} exclude one another.")
        return select(name, choices)
    fields = {"max_tokens": tokens, **settings, **rule}
    fields |= {"stop": stops} if stops else {}
    fields |= {"n": number} if number > 1 else {}
    return Gen(name_of(name), fields, user_place())


def select(
    name: str, choices: Sequence[str], method: str = "token_length_normalized"
) -> Expression:
    """The choice that the model finds likeliest, read as `s[name]` (docs/programs.md: methods)."""
    if method not in METHODS:
        raise mistake(f"method is {method!r}: expected one of {', '.join(METHODS)}.")
    return Select(name_of(name), choices_of(choices), method, user_place())


def system(content: Expression | str) -> Expression:
    """A system's message."""
    return Message("system", content)


def user(content: Expression | str) -> Expression:
    """A user's message."""
    return Message("user", content)


def assistant(content: Expression | str) -> Expression:
    """An assistant's message, in which gen and select may stand."""
    return Message("assistant", content)
