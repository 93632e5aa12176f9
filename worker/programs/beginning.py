"""What a program begins with before anything is generated, and where boundaries lie in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proto.program import Message, Node, Text
from worker.programs.tape import Writer
from worker.sequence import BoundaryPosition, unpack_tokens
from worker.submission import NamedBoundary, Unit
from worker.text.agreement import common_length
from worker.text.plain import PlainText


@dataclass(frozen=True, slots=True)
class Beginning:
    """ids: of what is literal. positions: of the gateway's boundaries in it."""

    ids: Sequence[int]
    positions: tuple[BoundaryPosition, ...]

    def within(self, prompt: bytes) -> tuple[BoundaryPosition, ...]:
        """Returns those that lie in what a prompt has of the beginning."""
        shared = common_length(self.ids, unpack_tokens(prompt))
        return tuple(one for one in self.positions if 0 < one.num_tokens <= shared)


def beginning_of(
    nodes: Sequence[Node], boundaries: Sequence[NamedBoundary], writer: Writer
) -> Beginning | None:
    """Returns a program's beginning, None where no boundary lies in it.

    Raises ContextLengthExceeded, InvalidRequest.
    """
    told = list(_messages(nodes))
    text = "" if told else _text(nodes)
    unit, most = (Unit.MESSAGES, len(told)) if told else (Unit.CHARS, len(text))
    found = [one for one in boundaries if one.unit is unit and one.count <= most]
    if not found:
        return None
    found.sort(key=lambda one: one.count)
    counts = [one.count for one in found]
    if told:
        prompt = writer.template.encode(told)
        ids = list(prompt.ids)
        places = writer.template.boundary_positions(told, (), {}, counts, prompt)
    else:
        writer.check_room(len(text))
        plain = PlainText(writer.tokenizer).encode(text, counts, None)
        ids, places = plain.ids, list(plain.positions)
    named = zip(found, places, strict=True)
    return Beginning(ids, tuple(BoundaryPosition(one.digest, place) for one, place in named))


def _messages(nodes: Sequence[Node]) -> Iterator[dict[str, str]]:
    """The first messages, as far as they are literal."""
    for node in nodes:
        if not isinstance(node, Message):
            return
        if not all(isinstance(one, Text) and _is_literal(one) for one in node.body):
            return
        yield {"role": node.role, "content": _text(node.body)}


def _text(nodes: Sequence[Node]) -> str:
    """The text of the first nodes, as far as it is literal."""
    found: list[str] = []
    for node in nodes:
        if not isinstance(node, Text) or not _is_literal(node):
            break
        found += [part for part in node.text if isinstance(part, str)]
    return "".join(found)


def _is_literal(node: Text) -> bool:
    return all(isinstance(part, str) for part in node.text)
