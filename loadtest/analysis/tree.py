"""Prompts as paths of a radix tree: what each shares with earlier ones, to the symbol.

A symbol is `width` bytes: a token's id, a byte of text, a block's id. It stands for so many units
of length (`span`). A block that is not full takes a whole one's place, as in a cache. A node is a
run of symbols that all its prompts share; it is cut where one ends or goes another way, so all of
it was used together.

    root ── system 0..412 ──┬── 412..600 ── 600..610
                            └── 412..430
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Grain:
    """width: bytes of a symbol. span: units that it stands for. per_token: units of a token."""

    width: int
    span: int = 1
    per_token: int = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a message, in units. role: whose it is; empty: not known."""

    end: int
    role: str = ""


@dataclass(slots=True, eq=False)
class Node:
    """A run of symbols behind its parent's; begin, end: symbols in front of it and to its end.

    number: names it. last: the request that used it last. marks: of the prompt that brought it.
    """

    parent: Node | None
    run: bytes
    begin: int
    end: int
    number: int
    uses: int = 0
    last: int = -1
    marks: tuple[Mark, ...] = ()
    children: dict[bytes, Node] = field(default_factory=dict)

    def path(self) -> list[Node]:
        """From the first node below the root to this one."""
        found: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a prompt, in units, that one earlier request was the last to use."""

    last: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A prompt's way. matched: units shared with earlier ones; stretches: those, in order."""

    node: Node
    matched: int
    stretches: tuple[Stretch, ...]


class Tree:
    """All prompts so far. size: bytes of symbols that are held, each once."""

    def __init__(self, grain: Grain):
        self.grain = grain
        self.root = Node(None, b"", 0, 0, 0)
        self.num_nodes = 1
        self.num_requests = 0
        self.size = 0

    def add(self, symbols: bytes, marks: tuple[Mark, ...] = ()) -> Passage:
        """The prompt is held; returns its way and what was there before."""
        passed = self._walk(symbols)
        stretches = self._stretches(passed)
        at = passed[-1].end if passed else 0
        if at * self.grain.width < len(symbols):
            passed.append(self._grow(passed[-1] if passed else self.root, symbols, marks))
        for node in passed:
            node.uses += 1
            node.last = self.num_requests
        self.num_requests += 1
        matched = stretches[-1].end if stretches else 0
        return Passage(passed[-1] if passed else self.root, matched, stretches)

    def nodes(self) -> Iterator[Node]:
        """All of them but the root, parents first."""
        waiting = list(self.root.children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())

    def units(self, node: Node) -> int:
        """Units of the node's own run."""
        return (node.end - node.begin) * self.grain.span

    def _walk(self, symbols: bytes) -> list[Node]:
        """The nodes of the shared beginning; the last one is cut where it is left."""
        width, node, passed = self.grain.width, self.root, []
        at = 0
        while at < len(symbols):
            child = node.children.get(symbols[at : at + width])
            if child is None:
                break
            there = symbols[at : at + len(child.run)]
            shared = common(child.run, there) // width * width
            node = child if shared == len(child.run) else self._cut(child, shared)
            passed.append(node)
            at += shared
            if node is not child:
                break
        return passed

    def _cut(self, node: Node, shared: int) -> Node:
        """A new node has the first bytes of the run, and this one, behind it, the rest."""
        assert node.parent is not None, "the root has no run"
        middle = node.begin + shared // self.grain.width
        above = Node(
            node.parent,
            node.run[:shared],
            node.begin,
            middle,
            self._number(),
            node.uses,
            node.last,
            node.marks,
        )
        width = self.grain.width
        node.parent.children[node.run[:width]] = above
        node.run, node.begin, node.parent = node.run[shared:], middle, above
        above.children[node.run[:width]] = node
        return above

    def _grow(self, parent: Node, symbols: bytes, marks: tuple[Mark, ...]) -> Node:
        width = self.grain.width
        run = symbols[parent.end * width :]
        end = parent.end + len(run) // width
        node = Node(parent, run, parent.end, end, self._number(), marks=marks)
        parent.children[run[:width]] = node
        self.size += len(run)
        return node

    def _number(self) -> int:
        self.num_nodes += 1
        return self.num_nodes - 1

    def _stretches(self, passed: list[Node]) -> tuple[Stretch, ...]:
        span, found = self.grain.span, list[Stretch]()
        for node in passed:
            begin, end = node.begin * span, node.end * span
            if found and found[-1].last == node.last:
                begin = found.pop().begin
            found.append(Stretch(node.last, begin, end))
        return tuple(found)


def common(first: bytes, second: bytes) -> int:
    """How many bytes two texts share from the start."""
    low, high = 0, min(len(first), len(second))
    if first[:high] == second[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low
