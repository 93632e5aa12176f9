"""What must hold of a program before a worker has it: names, places, sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gateway.config import ProgramLimitConfig
from gateway.errors import InvalidRequest
from gateway.http.decoding import check_depth, invalid
from proto.program import Fork, Gen, Message, Node, Part, Select, Text, Variable

_MAX_SCHEMA_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Size:
    """What a program takes. tokens: that it may generate. width: sequences side by side."""

    nodes: int
    tokens: int
    width: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node stands. role: of the message around it, None: in none."""

    path: str
    depth: int = 0
    role: str | None = None


@dataclass(slots=True)
class _Walk:
    """One pass, in the document's order: what was set before may be read."""

    limits: ProgramLimitConfig
    known: dict[str, bool] = field(default_factory=dict)
    num_nodes: int = 0
    num_branches: int = 1
    tokens: int = 0
    has_messages: bool = False
    has_text: str | None = None

    def walk(self, nodes: Iterable[Node], place: _Place) -> int:
        """Checks nodes; returns how many sequences they take side by side."""
        width = 1
        for position, node in enumerate(nodes):
            self.num_nodes += 1
            here = _Place(f"{place.path}[{position}]", place.depth, place.role)
            if self.num_nodes > self.limits.nodes:
                raise invalid("program", f"at most {self.limits.nodes} nodes are allowed")
            if isinstance(node, Message):
                self._message(here)
                inner = _Place(f"{here.path}.body", place.depth, node.role)
                width = max(width, self.walk(node.body, inner))
                continue
            if place.role is None and not isinstance(node, Fork):
                self.has_text = self.has_text or here.path
            width = max(width, self._one(node, here))
        return width

    def _one(self, node: Text | Gen | Select | Fork, place: _Place) -> int:
        if isinstance(node, Fork):
            return self._fork(node, place)
        if isinstance(node, Text):
            self._read(node.text, f"{place.path}.text")
            return 1
        if place.role not in (None, "assistant"):
            raise invalid(place.path, f"a message of the role {place.role!r} holds text only")
        return self._gen(node, place) if isinstance(node, Gen) else self._select(node, place)

    def _message(self, place: _Place) -> None:
        self.has_messages = True
        if place.role is not None:
            raise invalid(place.path, "a message within a message")

    def _gen(self, node: Gen, place: _Place) -> int:
        limits = self.limits
        if node.n > limits.n:
            raise invalid(f"{place.path}.n", f"expected at most {limits.n}")
        given = {"regex": node.regex, "json_schema": node.json_schema, "grammar": node.grammar}
        rules = [name for name, value in given.items() if value is not None]
        if len(rules) > 1:
            raise invalid(place.path, f"{rules[0]} and {rules[1]} exclude one another")
        check_depth(f"{place.path}.json_schema", node.json_schema, _MAX_SCHEMA_DEPTH)
        self._spend(node.max_tokens * node.n)
        self._set(node.name, place, is_single=node.n == 1)
        return node.n

    def _select(self, node: Select, place: _Place) -> int:
        if len(node.choices) > self.limits.choices:
            raise invalid(
                f"{place.path}.choices", f"at most {self.limits.choices} choices are allowed"
            )
        for position, choice in enumerate(node.choices):
            path = f"{place.path}.choices[{position}]"
            self._read(choice, path)
            if not any(choice):
                raise invalid(path, "an empty choice has no likelihood")
        self._set(node.name, place, is_single=True)
        return len(node.choices)

    def _fork(self, node: Fork, place: _Place) -> int:
        if place.role not in (None, "assistant"):
            raise invalid(place.path, f"a message of the role {place.role!r} holds text only")
        if place.depth >= self.limits.depth:
            raise invalid(place.path, f"forks are at most {self.limits.depth} deep")
        self.num_branches += len(node.branches)
        if self.num_branches > self.limits.branches:
            raise invalid("program", f"at most {self.limits.branches} branches are allowed")
        return 1 + sum(
            self.walk(
                branch, _Place(f"{place.path}.branches[{position}]", place.depth + 1, place.role)
            )
            for position, branch in enumerate(node.branches)
        )

    def _read(self, parts: Sequence[Part], path: str) -> None:
        for position, part in enumerate(parts):
            if not isinstance(part, Variable):
                continue
            if part.var not in self.known:
                raise invalid(f"{path}[{position}].var", f"nothing before it sets {part.var!r}")
            if not self.known[part.var]:
                raise invalid(f"{path}[{position}].var", f"{part.var!r} has several values")

    def _set(self, name: str, place: _Place, *, is_single: bool) -> None:
        if name in self.known:
            raise invalid(f"{place.path}.name", f"{name!r} is set twice")
        self.known[name] = is_single

    def _spend(self, tokens: int) -> None:
        self.tokens += tokens
        if self.tokens > self.limits.tokens:
            raise InvalidRequest(
                f"Invalid value for 'program': its nodes may generate {self.tokens} tokens "
                f"together; at most {self.limits.tokens} are allowed.",
                param="program",
            )


def checked(program: Sequence[Node], limits: ProgramLimitConfig, *, goes_on: bool) -> Size:
    """What the program takes. goes_on: it continues a session. Raises InvalidRequest."""
    walk = _Walk(limits)
    width = walk.walk(program, _Place("program"))
    if walk.has_messages and walk.has_text is not None:
        raise invalid(walk.has_text, "text outside of messages, beside messages")
    if not program and not goes_on:
        raise invalid("program", "expected at least one node")
    return Size(walk.num_nodes, walk.tokens, width)
