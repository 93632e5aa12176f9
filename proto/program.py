"""A program as JSON (docs/programs.md): what gateways check and workers run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

# Not `$`, which lets a newline behind it through.
Name = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.#-]{0,63}\Z")]
Stops = Annotated[list[Annotated[str, Meta(min_length=1, max_length=1024)]], Meta(max_length=16)]


class Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node behind this one reads."""

    var: Name


Part = str | Variable


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="text"):
    """Literal text and variables, appended."""

    text: list[Part]


class Gen(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="op",
    tag="gen",
):
    """Generated text. n above 1: so many values; the branch goes on with the first one's text."""

    name: Name
    max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    stop: Stops = []
    n: Annotated[int, Meta(ge=1)] = 1
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    regex: str | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = None


class Select(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="op",
    tag="select",
):
    """The likeliest of these texts."""

    name: Name
    choices: Annotated[list[list[Part]], Meta(min_length=1)]
    method: Literal[
        "token_length_normalized",
        "greedy_token_selection",
        "unconditional_likelihood_normalized",
    ] = "token_length_normalized"


class Message(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="message"
):
    """A chat message. Only an assistant's is generated."""

    role: Literal["system", "user", "assistant"]
    body: list[Node]


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="fork"):
    """Branches that go on from here, side by side; what is behind the fork does without them."""

    branches: Annotated[list[list[Node]], Meta(min_length=1)]


Node = Text | Gen | Select | Message | Fork


def walk(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes and all that they hold, in the document's order."""
    for node in nodes:
        yield node
        if isinstance(node, Message):
            yield from walk(node.body)
        elif isinstance(node, Fork):
            for branch in node.branches:
                yield from walk(branch)


class ProgramSampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What nodes take that name no value of their own; None: a chat's default."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told. heal: see docs/programs.md."""

    program: list[Node]
    sampling: ProgramSampling = ProgramSampling()
    heal: bool = True
