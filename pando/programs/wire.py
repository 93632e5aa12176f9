"""What the gateway tells of a program, read: an answer, or events one by one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pando.errors import ProgramError, SessionLost
from pando.programs.document import Read


@dataclass(frozen=True, slots=True)
class NodeTrace:
    """What one gen or select gave and took. index: of n. scores: of a select's choices, in order.

    cached_tokens: of prompt_tokens, those that weren't computed again. started_s, ended_s: seconds
    from the run's begin.
    """

    name: str
    op: str
    index: int = 0
    value: str = ""
    finish_reason: str | None = None
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    scores: list[float] | None = None
    started_s: float = 0.0
    ended_s: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it took, waiting for its turn included."""
        return self.ended_s - self.started_s

    def later(self, by_s: float) -> NodeTrace:
        """The same, begun later."""
        return replace(self, started_s=self.started_s + by_s, ended_s=self.ended_s + by_s)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the gateway counts them. requests: that the run took."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
            self.requests + other.requests,
        )


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a stream tells. kind: `delta` (text), `node` (its trace), or `restart`.

    restart: the graph turned out not to be the function's with these values; what was told is void.
    """

    kind: str
    name: str = ""
    index: int = 0
    text: str = ""
    node: NodeTrace | None = None


@dataclass(slots=True)
class Answer:
    """What one request gave. session: the id to go on with."""

    variables: dict[str, Read] = field(default_factory=dict)
    nodes: list[NodeTrace] = field(default_factory=list)
    usage: Usage = Usage()
    session: str | None = None


def read_answer(told: Mapping[str, Any]) -> Answer:
    """An answer that came whole, or a stream's last event."""
    usage = told.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    session = told.get("session") or {}
    return Answer(
        dict(told["variables"]),
        [read_node(node) for node in told.get("nodes", [])],
        Usage(
            usage.get("prompt_tokens", 0),
            details.get("cached_tokens", 0),
            usage.get("completion_tokens", 0),
            1,
        ),
        session.get("id"),
    )


def read_node(told: Mapping[str, Any]) -> NodeTrace:
    """A node's trace; fields that a later gateway adds are left out."""
    return NodeTrace(**{key: told[key] for key in NodeTrace.__slots__ if key in told})


def read_event(told: Mapping[str, Any]) -> Event | Answer | None:
    """An event of a stream; None: one that says nothing. Raises ProgramError."""
    if "error" in told:
        raise read_error(None, told)
    kind = told.get("event")
    if kind == "delta":
        return Event("delta", told["name"], told.get("index", 0), told["text"])
    if kind == "node":
        node = read_node(told)
        return Event("node", node.name, node.index, node.value, node)
    return read_answer(told) if kind == "done" else None


def read_error(status: int | None, told: object) -> ProgramError:
    """The error that a body or event tells."""
    error = told.get("error") if isinstance(told, dict) else None
    if not isinstance(error, dict):
        return ProgramError(f"The gateway answered with status {status}.", status=status)
    code, param = error.get("code"), error.get("param")
    kind = SessionLost if code == "session_lost" else ProgramError
    message = str(error.get("message") or f"The gateway answered with status {status}.")
    return kind(message, status=status, code=code, param=param)


def parsed(text: str | bytes) -> Any:
    """JSON, or None where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


async def event_data(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields what a stream of events says behind each `data:`.

    Lines end at newlines alone. `str.splitlines`, and so httpx's `aiter_lines`, also ends them at
    characters that may stand in JSON and that a model may say, as U+2028. The last one needs none.
    """
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()
    if rest.startswith(b"data:"):
        yield rest.removeprefix(b"data:").strip()
