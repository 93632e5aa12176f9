"""Random programs as hypothesis strategies: one that fails shrinks to what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.worker.programs.bench import Node, fork, gen, message, select, text, var

METHODS = (
    "token_length_normalized",
    "greedy_token_selection",
    "unconditional_likelihood_normalized",
)
WORDS = (
    *(" the", "a", " tree", "Yes", "No", "\n", " ", "  ", "123", "ing", "://"),
    *("日本", "é", '"', "."),
)
# Texts, and choices whose beginning the tokenizer writes as one token with the text's end.
MERGING = (
    ("inter", ("national", "im", "n")),
    (" htt", ("p", "ps", "p://")),
    ("\n", ("\n", "\n\n")),
    (" under", ("stand", "standing", "ground")),
)
KINDS = ("text",) * 4 + ("gen",) * 4 + ("select",) * 3 + ("merged",)
Drawn = TypeVar("Drawn")


@dataclass
class Drawing:
    """A program under way. readable: names that a later node may read."""

    draw: st.DrawFn
    readable: list[str] = field(default_factory=list)
    count: int = 0

    def one(self, *of: Drawn) -> Drawn:
        return self.draw(st.sampled_from(of))

    def upto(self, most: int, least: int = 1) -> int:
        return self.draw(st.integers(least, most))

    def words(self, most: int) -> str:
        return "".join(self.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=most)))

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def parts(self) -> list[Any]:
        found: list[Any] = [self.words(4)]
        if self.readable and self.upto(3) == 3:
            found.insert(self.upto(1, 0), var(self.one(*self.readable)))
        return found

    def nodes(self, depth: int) -> list[Node]:
        return [node for _ in range(self.upto(4)) for node in self.step(depth)]

    def step(self, depth: int) -> list[Node]:
        """A node; before a select, maybe the text that it merges with."""
        kind = self.one(*KINDS, *(["fork"] * 2 if depth else []))
        if kind == "text":
            return [text(*self.parts())]
        if kind == "fork":
            return [fork(*(self.nodes(depth - 1) for _ in range(self.upto(3))))]
        if kind == "gen":
            return [self.gen()]
        if kind == "select":
            return [self.select(self.choices())]
        front, choices = self.one(*MERGING)
        return [text(self.words(2), front), self.select(choices)]

    def turn(self) -> list[Node]:
        asked = message("user", text("Say" + self.words(6)), text(*self.parts()))
        return [asked, message("assistant", *self.nodes(1))]

    def gen(self) -> Node:
        stops = st.lists(st.sampled_from([".", "\n", " the", "a", "e"]), max_size=2, unique=True)
        return gen(self.named(), self.upto(5), stop=self.draw(stops))

    def select(self, choices: tuple[str, ...]) -> Node:
        listed = self.draw(st.permutations(choices))
        return select(self.named(), *listed, method=self.one(*METHODS))

    def choices(self) -> tuple[str, ...]:
        """Different texts, of which one goes on where another ends."""
        first = self.words(3)
        return tuple(sorted({first, first + self.words(2), self.words(2), self.words(1)}))

    def named(self) -> str:
        name = self.name()
        self.readable.append(name)
        return name


@st.composite
def programs(draw: st.DrawFn) -> list[Node]:
    """Programs without messages."""
    drawing = Drawing(draw)
    return [text(drawing.words(12)), *drawing.nodes(2), *drawing.nodes(1)]


# Branches that go on behind an answer, in messages of their own and within one.
FORKED_CHAT = [
    message("user", text("Name a tree")),
    message("assistant", gen("tree")),
    fork(
        [message("user", text("Its leaves")), message("assistant", gen("leaves"), text("."))],
        [message("user", text("Its bark")), message("assistant", gen("bark"))],
    ),
    message("user", text("Its roots")),
    message("assistant", fork([gen("thick")], [text("Long"), gen("long")]), gen("roots")),
    message("user", text("And", var("leaves"))),
    message("assistant", gen("end")),
]


@st.composite
def chats(draw: st.DrawFn) -> list[Node]:
    """Programs of messages."""
    drawing = Drawing(draw)
    found = [message("system", text("Be" + drawing.words(4)))] if draw(st.booleans()) else []
    for _ in range(drawing.upto(3)):
        found += drawing.turn()
    if draw(st.booleans()):
        found.append(fork(*(drawing.turn() for _ in range(drawing.upto(2)))))
        found += drawing.turn()
    return found
