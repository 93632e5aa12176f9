"""A program's steps as a tree, and what is made of it: the graph's JSON, text, messages.

Tracing, a session and the check of a trace all write the same tree; they differ in what a value is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pando.programs.value import Part, Var

# A value: text, or one text for each of n.
Read = str | list[str]
# The graph's JSON, as in docs/programs.md.
Node = dict[str, Any]


@dataclass(slots=True)
class TextStep:
    """Text and values."""

    parts: list[Part]
    place: str


@dataclass(slots=True)
class AskStep:
    """A gen or a select. name: in the graph. choices: of a select."""

    op: str
    name: str
    fields: Mapping[str, Any]
    choices: list[list[Part]]
    place: str


@dataclass(slots=True)
class MessageStep:
    """A message; nobody but the branch that opened it appends to it."""

    role: str
    body: list[Step] = field(default_factory=list)
    is_open: bool = True


@dataclass(slots=True)
class ForkStep:
    """Branches that go on from here, side by side."""

    branches: list[list[Step]]


Step = TextStep | AskStep | MessageStep | ForkStep


def asks(steps: Iterable[Step], *, forks: bool = True) -> Iterator[AskStep]:
    """All gens and selects in the document's order. forks: those in branches too."""
    for step in steps:
        if isinstance(step, AskStep):
            yield step
        elif isinstance(step, MessageStep):
            yield from asks(step.body, forks=forks)
        elif isinstance(step, ForkStep) and forks:
            for branch in step.branches:
                yield from asks(branch)


def unset_read(steps: Iterable[Step], known: set[str] | None = None) -> tuple[str, str] | None:
    """The first (place, name) that reads what only a later node sets, if there is one."""
    known = set() if known is None else known
    for step in steps:
        if isinstance(step, TextStep | AskStep):
            texts = [step.parts] if isinstance(step, TextStep) else step.choices
            for part in (part for parts in texts for part in parts):
                if isinstance(part, Var) and part.name not in known:
                    return step.place, part.name
            if isinstance(step, AskStep):
                known.add(step.name)
            continue
        for inner in [step.body] if isinstance(step, MessageStep) else step.branches:
            if found := unset_read(inner, known):
                return found
    return None


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes steps as the graph's JSON. known: values that are written as text where they are read.

    finished: gens and selects that are written as the text of their value, and forks without others
    left out.
    """

    known: Mapping[str, Read] = field(default_factory=dict)
    finished: Mapping[str, Read] = field(default_factory=dict)

    def nodes(self, steps: Iterable[Step]) -> list[Node]:
        """The nodes of one branch; text that follows text is one node."""
        found: list[Node] = []
        for step in steps:
            node = self._node(step)
            if node is None:
                continue
            if node["op"] == "text" and found and found[-1]["op"] == "text":
                node = {"op": "text", "text": _merged([*found.pop()["text"], *node["text"]])}
            found.append(node)
        return found

    def _node(self, step: Step) -> Node | None:
        match step:
            case TextStep():
                parts = self._parts(step.parts)
                return {"op": "text", "text": parts} if parts else None
            case AskStep() if step.name in self.finished:
                text = first(self.finished[step.name])
                return {"op": "text", "text": [text]} if text else None
            case AskStep():
                choices = [self._parts(choice) for choice in step.choices]
                return {
                    "op": step.op,
                    "name": step.name,
                    **step.fields,
                    **({"choices": choices} if choices else {}),
                }
            case MessageStep():
                return {"op": "message", "role": step.role, "body": self.nodes(step.body)}
            case ForkStep():
                return self._fork(step)

    def _fork(self, step: ForkStep) -> Node | None:
        branches = [self.nodes(branch) for branch in step.branches]
        if self.finished:
            branches = [trimmed(branch) for branch in branches]
            branches = [branch for branch in branches if branch]
        return {"op": "fork", "branches": branches} if branches else None

    def _parts(self, parts: Sequence[Part]) -> list[Any]:
        return _merged(
            part
            if isinstance(part, str)
            else first(self.known[part.name])
            if part.name in self.known
            else {"var": part.name}
            for part in parts
        )


def _merged(parts: Iterable[Any]) -> list[Any]:
    """Literal text that follows literal text is one part."""
    found: list[Any] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return found


def trimmed(nodes: Sequence[Node]) -> list[Node]:
    """Without the end behind the last node that generates."""
    kept = list(nodes)
    while kept and not _generates(kept[-1]):
        kept.pop()
    return kept


def _generates(node: Node) -> bool:
    inner = [node.get("body", []), *node.get("branches", [])]
    return node["op"] in ("gen", "select") or any(_generates(n) for nodes in inner for n in nodes)


def first(value: Read) -> str:
    """What the text goes on with: of several values, the first."""
    return value if isinstance(value, str) else value[0]


def text_of(steps: Iterable[Step], values: Mapping[str, Read]) -> str:
    """The branch's text; of messages, each with its role in a paragraph of its own."""
    steps = list(steps)
    told = messages_of(steps, values)
    if told:
        return "\n\n".join(f"{one['role']}: {one['content']}" for one in told)
    return _content(steps, values)


def messages_of(steps: Iterable[Step], values: Mapping[str, Read]) -> list[dict[str, str]]:
    """The branch's messages, as chat completions take them."""
    return [
        {"role": step.role, "content": _content(step.body, values)}
        for step in steps
        if isinstance(step, MessageStep)
    ]


def _content(steps: Iterable[Step], values: Mapping[str, Read]) -> str:
    nodes = Writer(known=values, finished=values).nodes(steps)
    return "".join(part for node in nodes if node["op"] == "text" for part in node["text"])
