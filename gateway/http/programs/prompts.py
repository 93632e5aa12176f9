"""How many tokens stand in front of what a program's steps ask: what it is charged at most. Pure.

    A  gen x  select y      gen:     [A]                         once for each of n
                            select:  [A x choice 1] [A x choice 2] ...

Every step's prompt counts whole, whatever of it is cached. A gen's is estimated as a completion's
is. A select's is bounded: a few bytes of JSON ask for thousands of prompts, so none of them may
take more than is reserved for it. No token has less than a byte; of a value there are as many as
its gen may generate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from proto.program import Fork, Gen, Message, Node, Part, Select, Text

_BYTES_PER_TOKEN = 4
# Around a message, and before all of them or in front of a text: templates take fewer.
_MESSAGE_TOKENS = 16
_LEAD_TOKENS = 64


@dataclass(frozen=True, slots=True)
class _Length:
    """Of text that is known, in bytes, and of what is generated or a template's, in tokens."""

    num_bytes: int = 0
    tokens: int = 0

    def __add__(self, other: _Length) -> _Length:
        return _Length(self.num_bytes + other.num_bytes, self.tokens + other.tokens)

    @property
    def about(self) -> int:
        """Tokens, as prompts are estimated."""
        return -(-self.num_bytes // _BYTES_PER_TOKEN) + self.tokens

    @property
    def most(self) -> int:
        """Tokens, at most."""
        return self.num_bytes + self.tokens


@dataclass(frozen=True, slots=True)
class Prompts:
    """Tokens of all prompts together. gens: about so many. selects: at most."""

    gens: int = 0
    selects: int = 0

    @property
    def tokens(self) -> int:
        """In all."""
        return self.gens + self.selects


def prompts_of(program: Sequence[Node], kept_bytes: int = 0) -> Prompts:
    """What a checked program's steps ask together. kept_bytes: of the text that it goes on from."""
    walk = _Walk()
    walk.branch(program, _Length(kept_bytes))
    return walk.found


@dataclass(slots=True)
class _Walk:
    """One pass, in the document's order. values: the length of each."""

    found: Prompts = Prompts()
    values: dict[str, _Length] = field(default_factory=dict)

    def branch(self, nodes: Iterable[Node], front: _Length) -> _Length:
        """Counts a branch's steps behind what is in front; returns that with the branch's own."""
        for node in nodes:
            if isinstance(node, Text):
                front += self._joined(node.text)
            elif isinstance(node, Message):
                front = self.branch(node.body, front + _Length(tokens=_MESSAGE_TOKENS))
            elif isinstance(node, Fork):
                for branch in node.branches:
                    self.branch(branch, front)
            elif isinstance(node, Gen):
                front += self._gen(node, front)
            else:
                front += self._select(node, front)
        return front

    def _gen(self, node: Gen, front: _Length) -> _Length:
        asked = self.found.gens + node.n * front.about
        self.found = replace(self.found, gens=asked)
        self.values[node.name] = _Length(tokens=node.max_tokens)
        return self.values[node.name]

    def _select(self, node: Select, front: _Length) -> _Length:
        choices = [self._joined(choice) for choice in node.choices]
        asked = sum((front + choice).most + _LEAD_TOKENS for choice in choices)
        # This method also asks for each choice behind nothing.
        times = 2 if node.method == "unconditional_likelihood_normalized" else 1
        self.found = replace(self.found, selects=self.found.selects + times * asked)
        self.values[node.name] = max(choices, key=lambda choice: choice.most)
        return self.values[node.name]

    def _joined(self, parts: Sequence[Part]) -> _Length:
        texts = [
            _Length(len(part.encode())) if isinstance(part, str) else self.values[part.var]
            for part in parts
        ]
        return sum(texts, _Length())
