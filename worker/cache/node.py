"""One node of the radix tree, and the two comparisons that the tree lives on."""

from __future__ import annotations

from bisect import bisect_left

from worker.cache.interface import TOKEN_BYTES
from worker.cache.scope import Root

NOWHERE = Root()


class Node:
    """A run of whole pages below `parent`, or a stub: one partial page.

    start: depth of the first page. key: the run's tokens, packed. firsts: the keys of children
    and stubs, sorted. merged_into: the node that took this one over. root: names the tree, and
    counts in its root node only.
    """

    __slots__ = (
        "children",
        "firsts",
        "key",
        "merged_into",
        "pages",
        "parent",
        "root",
        "start",
        "stubs",
    )

    def __init__(self, parent: Node | None, start: int, root: Root = NOWHERE) -> None:
        self.parent = parent
        self.start = start
        self.root = root
        self.key = bytearray()
        self.pages: list[int] = []
        self.children: dict[bytes, Node] = {}
        self.stubs: dict[bytes, Node] = {}
        self.firsts: list[bytes] = []
        self.merged_into: Node | None = None

    @property
    def end(self) -> int:
        """Depth behind the last page."""
        return self.start + len(self.pages)

    @property
    def is_root(self) -> bool:
        """Whether this is a tree's root, which has no run."""
        return self.parent is None

    def best_partial(self, depth: int, rest: bytes, size: int) -> tuple[int | None, int]:
        """The page after `depth` pages of the run that agrees longest with rest, and how long."""
        if depth < len(self.pages):
            key = self.key[depth * size : (depth + 1) * size]
            return self.pages[depth], common_tokens(rest, key)
        best: tuple[int | None, int] = (None, 0)
        following = bisect_left(self.firsts, rest)
        for first in self.firsts[max(following - 1, 0) : following + 1]:
            common = common_tokens(rest, first)
            if common > best[1]:
                child = self.stubs.get(first) or self.children[first]
                best = (child.pages[0], common)
        return best

    def cut(self, depth: int, size: int) -> Node:
        """Moves the pages before `depth` into a new parent of this node and returns it."""
        assert self.parent is not None
        assert self.start < depth < self.end
        count = depth - self.start
        upper = Node(self.parent, self.start)
        upper.key, self.key = self.key[: count * size], self.key[count * size :]
        upper.pages, self.pages = self.pages[:count], self.pages[count:]
        self.parent.children[bytes(upper.key[:size])] = upper
        first = bytes(self.key[:size])
        upper.children[first] = self
        upper.firsts.append(first)
        self.parent, self.start = upper, depth
        return upper

    def absorb(self) -> list[int]:
        """Takes over the only child, which continues this run; returns the child's pages."""
        (child,) = self.children.values()
        pages = child.pages
        self.key += child.key
        self.pages = self.pages + pages
        self.children, self.stubs, self.firsts = child.children, child.stubs, child.firsts
        for below in (*self.children.values(), *self.stubs.values()):
            below.parent = self
        child.merged_into = self
        return pages

    def check(self, size: int, seen: dict[int, Node]) -> None:
        """Asserts the shape of the subtree and notes every page's owner in seen."""
        todo = [self]
        while todo:
            node = todo.pop()
            assert node.merged_into is None
            assert node.is_root or node.pages
            for page in node.pages:
                assert page not in seen, f"page {page} stands in two places"
                seen[page] = node
            assert node.firsts == sorted([*node.children, *node.stubs])
            assert node.is_root or node.stubs or len(node.children) != 1, "a run is cut in two"
            for first, child in node.children.items():
                assert child.parent is node
                assert child.start == node.end
                assert bytes(child.key[:size]) == first
                assert len(child.key) == len(child.pages) * size
            for first, stub in node.stubs.items():
                assert stub.parent is node
                assert bytes(stub.key) == first
                assert len(first) < size
                assert len(stub.pages) == 1
                assert not stub.children
                longer = [other for other in node.firsts if other != first]
                assert not any(other.startswith(first) for other in longer), "a stub is covered"
            todo += [*node.children.values(), *node.stubs.values()]


def common_tokens(one: bytes | bytearray, other: bytes | bytearray) -> int:
    """Number of leading tokens that two packed runs share."""
    length = min(len(one), len(other))
    differ = int.from_bytes(one[:length], "little") ^ int.from_bytes(other[:length], "little")
    if differ == 0:
        return length // TOKEN_BYTES
    return ((differ & -differ).bit_length() - 1) // (8 * TOKEN_BYTES)


def common_pages(tokens: bytes, offset: int, key: bytearray, start: int, size: int) -> int:
    """Number of whole pages that tokens at offset and key at start share; bisection by memcmp."""
    low, high = 0, min(len(tokens) - offset, len(key) - start) // size
    while low < high:
        middle = (low + high + 1) // 2
        if tokens.startswith(key[start + low * size : start + middle * size], offset + low * size):
            low = middle
        else:
            high = middle - 1
    return low
