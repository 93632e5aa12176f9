"""The beginnings that save most: which parts of the tree many prompts run through."""

from __future__ import annotations

import hashlib
from array import array
from heapq import nlargest

from loadtest.analysis.findings import Hot
from loadtest.analysis.tree import Node, Tree
from loadtest.analysis.writing import BytePen, Pen, TokenPen

NUM_HOT = 16
MAX_TEXT = 120
_MAX_ROLES = 3


def hottest(tree: Tree, pen: Pen | None, limit: int = NUM_HOT) -> list[Hot]:
    """What saves most tokens, parents before children. pen: shows texts; None: they stay hidden."""
    shared = (node for node in tree.nodes() if node.uses > 1)
    chosen = nlargest(limit, shared, key=lambda node: (_saved(tree, node), -node.number))
    chosen.sort(key=lambda node: (len(node.path()), -_saved(tree, node), node.number))
    numbers = {node.number: place for place, node in enumerate(chosen)}
    grain = tree.grain
    return [
        Hot(
            number=numbers[node.number],
            inside=_inside(node, numbers),
            role=_role(node, grain.span),
            begin=node.begin * grain.span // grain.per_token,
            end=node.end * grain.span // grain.per_token,
            requests=node.uses,
            saved_tokens=_saved(tree, node) // grain.per_token,
            digest=_digest(node),
            text=_text(node, pen),
        )
        for node in chosen
    ]


def _saved(tree: Tree, node: Node) -> int:
    return (node.uses - 1) * tree.units(node)


def _inside(node: Node, numbers: dict[int, int]) -> int | None:
    above = node.path()[:-1]
    return next((numbers[one.number] for one in reversed(above) if one.number in numbers), None)


def _role(node: Node, span: int) -> str:
    """Whose messages the run holds, in order."""
    begin, end, before = node.begin * span, node.end * span, 0
    roles = list[str]()
    for mark in node.marks:
        if before < end and mark.end > begin and mark.role and roles[-1:] != [mark.role]:
            roles.append(mark.role)
        before = mark.end
    more = len(roles) - _MAX_ROLES
    return " ".join(roles[:_MAX_ROLES]) + (f" and {more} more" if more > 0 else "")


def _digest(node: Node) -> str:
    """Of everything up to the node's end."""
    state = hashlib.blake2b(digest_size=6)
    for one in node.path():
        state.update(one.run)
    return state.hexdigest()


def _text(node: Node, pen: Pen | None) -> str:
    if isinstance(pen, TokenPen):
        ids = array("i")
        ids.frombytes(node.run[: 4 * MAX_TEXT])
        return pen.tokenizer.decode(ids.tolist())[:MAX_TEXT]
    if isinstance(pen, BytePen):
        return node.run[: 4 * MAX_TEXT].decode("utf-8", "replace")[:MAX_TEXT]
    return ""
