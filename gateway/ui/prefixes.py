"""What the last requests shared, as trees: by tenant and model, the most used first.

A node is a beginning that at least two of them had, and a twentieth of its tree's. A node with one
continuation, and the same requests behind it, is told as one with it. Digests are shortened; no
text is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from gateway.fleet.workers import Worker
from gateway.telemetry.lives import Life

# Nodes that are told in all, and beside each other.
MAX_NODES = 80
MAX_BESIDE = 8
_LEAST_SHARE = 0.05
_SHORT = 4


class PrefixNode(Struct, frozen=True):
    """A beginning. requests: of the last ones that had it. tokens: None where no worker holds it.

    roles: whose parts it adds to the one above. workers: whose caches hold it, or are expected to.
    """

    digest: str
    roles: list[str]
    requests: int
    tokens: int | None
    workers: list[str]
    below: list[PrefixNode]


class PrefixTree(Struct, frozen=True):
    """What one tenant's requests for one model shared. requests: all of those looked at."""

    tenant: str
    model: str
    requests: int
    below: list[PrefixNode]


@dataclass(slots=True)
class _Node:
    role: str = ""
    requests: int = 0
    below: dict[bytes, _Node] = field(default_factory=dict)


Serving = Callable[[str], dict[str, Worker]]


def prefix_trees(lives: Iterable[Life], serving: Serving) -> list[PrefixTree]:
    """The trees of these requests: milliseconds with a thousand of them. Any thread may call it.

    serving: the live workers of a model, by name; their views are only asked, one digest at a time.
    """
    roots: dict[tuple[str, str], _Node] = {}
    for life in lives:
        node = roots.setdefault((life.tenant, life.model), _Node())
        node.requests += 1
        beginning = life.beginning
        for digest, role in zip(beginning.digests, beginning.roles, strict=True):
            below = node.below.get(digest)
            if below is None:
                below = node.below[digest] = _Node(role)
            below.requests += 1
            node = below
    by_use = sorted(roots.items(), key=lambda item: -item[1].requests)[:MAX_BESIDE]
    room = _Room(MAX_NODES)
    trees = []
    for (tenant, model), root in by_use:
        telling = _Telling(serving(model), room, max(2.0, _LEAST_SHARE * root.requests))
        trees.append(PrefixTree(tenant, model, root.requests, telling.below(root)))
    return trees


class _Room:
    """How many nodes may still be told."""

    def __init__(self, left: int):
        self.left = left


class _Telling:
    """Nodes as they are shown, with what is known of their workers."""

    def __init__(self, workers: dict[str, Worker], room: _Room, least: float):
        self._workers = workers
        self._room = room
        self._least = least

    def below(self, node: _Node) -> list[PrefixNode]:
        """The continuations that several requests had."""
        shared = [(key, one) for key, one in node.below.items() if one.requests >= self._least]
        shared.sort(key=lambda item: -item[1].requests)
        told = []
        for digest, one in shared[:MAX_BESIDE]:
            if self._room.left <= 0:
                break
            self._room.left -= 1
            told.append(self._node(digest, one))
        return told

    def _node(self, digest: bytes, node: _Node) -> PrefixNode:
        roles = [node.role]
        while len(node.below) == 1:
            below, only = next(iter(node.below.items()))
            if only.requests != node.requests:
                break
            digest, node = below, only
            roles.append(node.role)
        held = {
            name: worker.view.tokens(digest)
            for name, worker in sorted(self._workers.items())
            if digest in worker.view
        }
        tokens = max((count for count in held.values() if count is not None), default=None)
        return PrefixNode(
            digest=digest[:_SHORT].hex(),
            roles=roles,
            requests=node.requests,
            tokens=tokens,
            workers=list(held),
            below=self.below(node),
        )
