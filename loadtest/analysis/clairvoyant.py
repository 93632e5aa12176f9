"""What no cache of a size can beat: one that knows the future (Belady, 1966), over the whole log.

It keeps what is used again soonest and refuses what is not used again. What lies in front of a unit
is used again no later than the unit, so what is held is a prefix tree. Its hits bound every rule of
eviction, and every fleet whose caches hold as much together. A prompt's last token counts here
where it is held, which is never served: the bound is too high by one token a prompt at most.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadtest.analysis.tree import Node, Tree

NEVER = 2**40
_DEPTH_BITS = 40


@dataclass(frozen=True, slots=True)
class Story:
    """The nodes of all requests, one behind the other, and which request uses each again.

    starts: where each request's nodes begin, and the end. sizes: of nodes, by number, in units.
    depths: units to their ends.
    """

    nodes: array[int]
    again: array[int]
    starts: Sequence[int]
    sizes: Sequence[int]
    depths: Sequence[int]


def story(tree: Tree, ends: Sequence[Node]) -> Story:
    """The requests as nodes of the finished tree. ends: where each one's path ends."""
    sizes, depths = [0] * tree.num_nodes, [0] * tree.num_nodes
    for node in tree.nodes():
        sizes[node.number] = tree.units(node)
        depths[node.number] = node.end * tree.grain.span
    nodes, starts = array("q"), [0]
    for end in ends:
        nodes.extend(node.number for node in end.path())
        starts.append(len(nodes))
    again = array("q", bytes(8 * len(nodes)))
    seen = [NEVER] * tree.num_nodes
    for number in range(len(ends) - 1, -1, -1):
        for place in range(starts[number], starts[number + 1]):
            node_number = nodes[place]
            again[place] = seen[node_number]
            seen[node_number] = number
    return Story(nodes, again, starts, sizes, depths)


def best_hits(told: Story, size: int) -> int:
    """Units of all requests that come from the best cache of that size, in units."""
    cache, hits = _Cache(told, size), 0
    for begin, end in pairwise(told.starts):
        places = range(begin, end)
        hits += sum(cache.held[told.nodes[place]] for place in places)
        for place in places:
            cache.use(told.nodes[place], told.again[place])
        cache.shrink()
    return hits


class _Cache:
    """Parts of nodes. held: units of each. What is used again latest goes, from its end."""

    def __init__(self, told: Story, size: int):
        self._told = told
        self._size = size
        self.held = [0] * len(told.sizes)
        self._again = [NEVER] * len(told.sizes)
        self._latest: list[tuple[int, int]] = []
        self._total = 0

    def use(self, node: int, again: int) -> None:
        """The node is held whole, unless nobody uses it again."""
        self._again[node] = again
        wanted = 0 if again == NEVER else self._told.sizes[node]
        self._total += wanted - self.held[node]
        self.held[node] = wanted
        if wanted:
            heapq.heappush(self._latest, (-(again << _DEPTH_BITS | self._told.depths[node]), node))

    def shrink(self) -> None:
        """It fits; of what one request uses again, the deepest went first."""
        while self._total > self._size:
            key, node = self._latest[0]
            if -key >> _DEPTH_BITS != self._again[node] or not self.held[node]:
                heapq.heappop(self._latest)
                continue
            gone = min(self.held[node], self._total - self._size)
            self.held[node] -= gone
            self._total -= gone
