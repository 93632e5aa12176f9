"""A program's outcome: node by node as events, or as one object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.errors import ErrorObject, GatewayError, public_body
from gateway.http.answer import END, Heading, event
from gateway.http.objects import UsageObject, usage_object
from gateway.request import NodeOutput, Output, Usage

Value = str | list[str]


class NodeObject(Struct, frozen=True):
    """What became of a node, and what it took. scores: of a select's choices."""

    name: str
    op: str
    index: int
    value: str
    finish_reason: str | None
    tokens: int
    prompt_tokens: int
    cached_tokens: int
    started_s: float
    ended_s: float
    scores: list[float] | UnsetType = UNSET


class SessionObject(Struct, frozen=True):
    """Under what the program's state is kept, and for how long from now."""

    id: str
    ttl_s: int


class ProgramObject(Struct, frozen=True):
    """A program that has run. text: the root's, generated text included."""

    id: str
    created: int
    model: str
    variables: dict[str, Value]
    text: str
    nodes: list[NodeObject]
    usage: UsageObject
    session: SessionObject | None = None
    service_tier: str | UnsetType = UNSET
    object: str = "program"


class Started(Struct, frozen=True, tag_field="event", tag="start"):
    """The first event."""

    id: str
    created: int
    model: str


class Delta(Struct, frozen=True, tag_field="event", tag="delta"):
    """More text of a node."""

    name: str
    index: int
    text: str


class Ended(NodeObject, frozen=True, tag_field="event", tag="node"):
    """A node has its value."""


class Done(Struct, frozen=True, tag_field="event", tag="done"):
    """The last event but for a stream's end."""

    variables: dict[str, Value]
    text: str
    usage: UsageObject
    session: SessionObject | None = None


class Failed(Struct, frozen=True, tag_field="event", tag="error"):
    """Why there will be no more."""

    error: ErrorObject


@dataclass(slots=True)
class _Node:
    """One value of a node under way."""

    texts: list[str] = field(default_factory=list)
    tokens: int = 0
    last: NodeOutput | None = None

    def take(self, output: NodeOutput) -> None:
        self.texts.append(output.text)
        self.tokens += len(output.token_ids) // 4
        self.last = output


@dataclass(frozen=True, slots=True)
class Shape:
    """What the answer must know of the program. counts: of values by name; above 1: a list.

    choices: selects. session_word: the random part of the session's id; ttl_s 0: none is kept.
    """

    counts: dict[str, int]
    selects: frozenset[str]
    session_word: str = ""
    ttl_s: int = 0


def _untold(word: str, num_bytes: int) -> None:
    """Nobody wants to know."""


class ProgramAnswer:
    """One program's. worker: who runs it, once that is known; it is part of the session's id.

    kept: told the session's word and the bytes of its text, where one is kept.
    """

    def __init__(self, heading: Heading, shape: Shape, kept: Callable[[str, int], None] = _untold):
        self._heading = heading
        self._kept = kept
        self._shape = shape
        self._nodes: dict[tuple[str, int], _Node] = {}
        self._ended: list[NodeObject] = []
        self._text = ""
        self._is_begun = False
        self.worker = ""

    def events(self, outputs: Iterable[Output]) -> bytes:
        """As Answer.events."""
        begun = [] if self._is_begun else [self._start()]
        return b"".join([*begun, *self._taken(outputs)])

    def tail(self, usage: Usage) -> bytes:
        """As Answer.tail."""
        begun = b"" if self._is_begun else self._start()
        done = Done(self._variables(), self._text, usage_object(usage), self._session())
        return begun + event(done) + END

    def failure(self, error: GatewayError) -> bytes:
        """As Answer.failure."""
        return event(Failed(public_body(error).error))

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """As Answer.whole."""
        for _ in self._taken(outputs):
            pass
        heading = self._heading
        return msgspec.json.encode(
            ProgramObject(
                heading.id,
                heading.created,
                heading.model,
                self._variables(),
                self._text,
                self._ended,
                usage_object(usage),
                self._session(),
                heading.service_tier or UNSET,
            )
        )

    def _start(self) -> bytes:
        self._is_begun = True
        heading = self._heading
        return event(Started(heading.id, heading.created, heading.model))

    def _taken(self, outputs: Iterable[Output]) -> Iterator[bytes]:
        for output in outputs:
            for node in output.nodes:
                if not node.name:
                    self._text = node.root_text
                    continue
                known = self._nodes.setdefault((node.name, node.index), _Node())
                known.take(node)
                is_select = node.name in self._shape.selects
                if node.text and not is_select:
                    yield event(Delta(node.name, node.index, node.text))
                if node.finish_reason is not None:
                    ended = self._object(known, node, is_select)
                    self._ended.append(ended)
                    yield event(Ended(**msgspec.structs.asdict(ended)))

    def _object(self, known: _Node, last: NodeOutput, is_select: bool) -> NodeObject:
        reason = None if last.finish_reason is None else last.finish_reason.value
        return NodeObject(
            last.name,
            "select" if is_select else "gen",
            last.index,
            "".join(known.texts),
            reason,
            known.tokens,
            last.prompt_tokens,
            last.cached_tokens,
            last.started_s,
            last.ended_s,
            list(last.scores) if is_select else UNSET,
        )

    def _variables(self) -> dict[str, Value]:
        """The values of the nodes that ended, by name in the program's order."""
        found: dict[str, Value] = {}
        for name, count in self._shape.counts.items():
            values = [
                "".join(node.texts)
                for index in range(count)
                if (node := self._nodes.get((name, index))) and node.last
            ]
            if values:
                found[name] = values if count > 1 else values[0]
        return found

    def _session(self) -> SessionObject | None:
        shape = self._shape
        if not shape.ttl_s:
            return None
        self._kept(shape.session_word, len(self._text.encode()))
        return SessionObject(f"{self.worker}~{shape.session_word}", shape.ttl_s)
