"""A picture of a program's graph: time flows down, branches of a fork stand side by side.

A branch is a spine of boxes. A fork's branches stand to the right of it, and the spine goes on
below them. Dashed lines lead from a value to the text that reads it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from pando.programs.document import AskStep, ForkStep, MessageStep, Step, TextStep
from pando.programs.value import Part, Var
from pando.programs.wire import NodeTrace

_WIDTH, _GAP, _LINE, _PAD = 196, 22, 15, 7
_CHARS = 26
_FILL = {"text": "#f4f4f2", "gen": "#dcebf7", "select": "#e3f1dc"}
_STYLE = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:11px"


@dataclass(frozen=True, slots=True)
class _Box:
    """A step at its place. reads: names of values in its text."""

    kind: str
    lines: tuple[str, ...]
    x: int
    y: int
    name: str = ""
    reads: tuple[str, ...] = ()

    @property
    def height(self) -> int:
        return _LINE * len(self.lines) + 2 * _PAD

    @property
    def bottom(self) -> tuple[int, int]:
        return self.x + _WIDTH // 2, self.y + self.height


@dataclass(slots=True)
class _Drawing:
    """Boxes and lines so far; nodes by their names."""

    nodes: dict[str, list[NodeTrace]]
    boxes: list[_Box] = field(default_factory=list)
    lines: list[tuple[int, int, int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Where the next box goes. above: the end of what it follows. right: of all so far."""

    x: int
    y: int
    right: int
    above: tuple[int, int] | None = None
    role: str = ""


def svg(steps: Sequence[Step], nodes: Sequence[NodeTrace]) -> str:
    """The picture. nodes: what is known of gens and selects."""
    by_name: dict[str, list[NodeTrace]] = {}
    for node in nodes:
        by_name.setdefault(node.name, []).append(node)
    drawing = _Drawing(by_name)
    end = _branch(drawing, steps, _Cursor(_GAP, _GAP, _GAP + _WIDTH))
    body = [*_edges(drawing), *_reads(drawing), *(_drawn(box) for box in drawing.boxes)]
    size = f'width="{end.right + _GAP}" height="{end.y + _GAP}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{_STYLE}">'
    back = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, back, *body, "</svg>", ""])


def _branch(drawing: _Drawing, steps: Sequence[Step], at: _Cursor) -> _Cursor:
    for step in steps:
        if isinstance(step, MessageStep):
            inner = _branch(drawing, step.body, _Cursor(at.x, at.y, at.right, at.above, step.role))
            at = _Cursor(inner.x, inner.y, inner.right, inner.above, at.role)
        elif isinstance(step, ForkStep):
            at = _fork(drawing, step, at)
        else:
            at = _step(drawing, step, at)
    return at


def _fork(drawing: _Drawing, step: ForkStep, at: _Cursor) -> _Cursor:
    right, lowest = at.x + _WIDTH, at.y
    for branch in step.branches:
        x = right + _GAP
        end = _branch(drawing, branch, _Cursor(x, at.y, x + _WIDTH, at.above, at.role))
        right, lowest = max(right, end.right), max(lowest, end.y)
    return _Cursor(at.x, lowest, max(at.right, right), at.above, at.role)


def _step(drawing: _Drawing, step: TextStep | AskStep, at: _Cursor) -> _Cursor:
    title = f"{at.role}: " if at.role else ""
    if isinstance(step, TextStep):
        box = _Box("text", _text_lines(title, step.parts), at.x, at.y, "", _names(step.parts))
    else:
        parts = [part for choice in step.choices for part in choice]
        known = drawing.nodes.get(step.name, [])
        lines = (_cut(f"{title}{step.op} {step.name}"), *_told(known))
        box = _Box(step.op, lines, at.x, at.y, step.name, _names(parts))
    drawing.boxes.append(box)
    if at.above is not None:
        drawing.lines.append((*at.above, at.x + _WIDTH // 2, at.y))
    return _Cursor(at.x, at.y + box.height + _GAP, at.right, box.bottom, at.role)


def _names(parts: Sequence[Part]) -> tuple[str, ...]:
    return tuple(part.name for part in parts if isinstance(part, Var))


def _text_lines(title: str, parts: Sequence[Part]) -> tuple[str, ...]:
    """Two lines at most."""
    text = title + "".join(part if isinstance(part, str) else f"{{{part.name}}}" for part in parts)
    return tuple(textwrap.wrap(text, _CHARS, max_lines=2, placeholder="…")) or (repr(text),)


def _told(nodes: Sequence[NodeTrace]) -> tuple[str, ...]:
    if not nodes:
        return ()
    tokens = sum(node.tokens for node in nodes)
    cached = f"{nodes[0].cached_tokens} of {nodes[0].prompt_tokens} cached"
    seconds = max(node.ended_s for node in nodes) - min(node.started_s for node in nodes)
    return (f"{tokens} tokens, {seconds:.2f} s", cached, _cut(repr(nodes[0].value)))


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS else f"{text[: _CHARS - 1]}…"


def _edges(drawing: _Drawing) -> list[str]:
    return [
        f'<path d="M{x1},{y1} C{x1},{y1 + _GAP} {x2},{y2 - _GAP} {x2},{y2}" '
        'fill="none" stroke="#777"/>'
        for x1, y1, x2, y2 in drawing.lines
    ]


def _reads(drawing: _Drawing) -> list[str]:
    """From the value's right side to the reader's, around what lies between."""
    by_name = {box.name: box for box in drawing.boxes if box.name}
    found = []
    for reader in drawing.boxes:
        for box in (by_name[name] for name in dict.fromkeys(reader.reads) if name in by_name):
            x1, y1 = box.x + _WIDTH, box.y + box.height // 2
            x2, y2 = reader.x + _WIDTH, reader.y + reader.height // 2
            bend = max(x1, x2) + _GAP
            found.append(
                f'<path d="M{x1},{y1} C{bend},{y1} {bend},{y2} {x2},{y2}" '
                'fill="none" stroke="#4a90c2" stroke-dasharray="4 3"/>'
            )
    return found


def _drawn(box: _Box) -> str:
    rect = (
        f'<rect x="{box.x}" y="{box.y}" width="{_WIDTH}" height="{box.height}" rx="4" '
        f'fill="{_FILL[box.kind]}" stroke="#999"/>'
    )
    texts = [
        f'<text x="{box.x + _PAD}" y="{box.y + _PAD + _LINE * (i + 1) - 4}"'
        f"{_bold(box, i)}>{_escaped(line)}</text>"
        for i, line in enumerate(box.lines)
    ]
    return "\n".join([rect, *texts])


def _bold(box: _Box, line: int) -> str:
    return ' font-weight="bold"' if box.kind != "text" and line == 0 else ""


def _escaped(text: str) -> str:
    """XML takes no control characters, however they are written."""
    return escape("".join(char if char.isprintable() else "\ufffd" for char in text))
