"""A function that looks at values runs as several requests on one worker.

Before a value is read, what is pending is sent. The worker's session holds the root's text as far
as a generated piece or a whole message ends it; text behind that isn't sent for good, since what
follows joins it:

    root's steps   [ 0 ......... kept ) [ kept ....... cut ) [ cut ...... end )
                     in the session       sent, then kept      sent in a fork: looked at, not kept

Forks are part of what is looked at for as long as the root hasn't gone on: a branch is sent again
with what it gave so far as text. Where that doesn't do (the root went on, or the session is lost),
the whole program is sent with all values as text, and a new session begins; its pages are cached.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pando.errors import ProgramError, SessionLost
from pando.programs.client import Client, Stopper, Tell
from pando.programs.document import (
    AskStep,
    MessageStep,
    Node,
    Read,
    Step,
    Writer,
    asks,
    messages_of,
    text_of,
    trimmed,
)
from pando.programs.tracing import literal
from pando.programs.value import Part
from pando.programs.wire import Answer, NodeTrace, Usage

TTL_S = 60


@dataclass(frozen=True, slots=True)
class Request:
    """What all requests of a run have in common. tell: None where nothing is streamed."""

    client: Client
    model: str
    sampling: dict[str, Any]
    heal: bool
    stopper: Stopper
    tell: Tell | None

    def ask(self, nodes: list[Node], extra: dict[str, Any]) -> Answer:
        """Runs nodes. Raises ProgramError."""
        return self.client.ask({**self.body(nodes), **extra}, self.stopper, self.tell)

    def body(self, nodes: list[Node]) -> dict[str, Any]:
        """The JSON without what is only this request's."""
        body: dict[str, Any] = {"model": self.model, "program": nodes, "heal": self.heal}
        return {**body, "sampling": self.sampling} if self.sampling else body


class Session:
    """A Reader that asks the worker. It alone writes what is kept and known."""

    def __init__(self, request: Request, steps: list[Step]) -> None:
        self._request = request
        self._steps = steps
        self._id: str | None = None
        self._kept = 0
        self._begun_s = time.monotonic()
        self.values: dict[str, Read] = {}
        self.nodes: list[NodeTrace] = []
        self.usage = Usage()

    def read(self, name: str) -> Read:
        """The value; what is pending runs first. Raises ProgramError."""
        if name not in self.values:
            self._flush(is_last=False)
        return self.values[name]

    def parts(self, text: str) -> list[Part]:
        """As Reader.parts."""
        return literal(text)

    def text(self, steps: Sequence[Step]) -> str:
        """As Reader.text."""
        return text_of(self._finished(steps), self.values)

    def messages(self, steps: Sequence[Step]) -> list[dict[str, str]]:
        """As Reader.messages."""
        return messages_of(self._finished(steps), self.values)

    def finish(self) -> None:
        """All values are there, and the worker keeps nothing."""
        self._flush(is_last=True)
        self.close()

    def close(self) -> None:
        """The worker may let go. Whether it hears of it doesn't matter: sessions expire."""
        if self._id is not None:
            ending = {"session": {"id": self._id, "ttl_s": 0}}
            self._id = None
            self._request.client.drop({**self._request.body([]), **ending})

    def _finished(self, steps: Sequence[Step]) -> Sequence[Step]:
        if self._is_pending(steps):
            self._flush(is_last=False)
        return steps

    def _is_pending(self, steps: Sequence[Step]) -> bool:
        return any(ask.name not in self.values for ask in asks(steps))

    def _flush(self, *, is_last: bool) -> None:
        if not self._is_pending(self._steps):
            return
        if self._id is not None and not self._is_pending(self._steps[: self._kept]):
            with suppress(SessionLost):
                self._send(self._kept, is_last=is_last)
                return
        self._id, self._kept = None, 0
        self._send(0, is_last=is_last)

    def _send(self, start: int, *, is_last: bool) -> None:
        writer = Writer(finished=self.values)
        cut = self._cut(start)
        nodes = writer.nodes(self._steps[start:cut])
        tail = trimmed(writer.nodes(self._steps[cut:]))
        # With nothing to keep, no session is begun: the text in front leads to the right worker.
        is_kept = cut > 0
        if is_kept and any(node["op"] != "fork" for node in tail):
            tail = [{"op": "fork", "branches": [tail]}]
        nodes += tail
        own = self._own(is_last=is_last) if is_kept else {}
        begun_s = time.monotonic() - self._begun_s
        try:
            answer = self._request.ask(nodes, {**own, **self._seed()})
        except SessionLost:
            self._id = None
            raise
        except BaseException:
            self.close()  # who knows what is there by now
            raise
        self._take(answer, begun_s)
        self._id, self._kept = answer.session, cut

    def _cut(self, start: int) -> int:
        """Behind the last step that ends a text for good: generated, or a whole message."""
        for index in range(len(self._steps), start, -1):
            step = self._steps[index - 1]
            if isinstance(step, AskStep) or (isinstance(step, MessageStep) and not step.is_open):
                return index
        return start

    def _take(self, answer: Answer, begun_s: float) -> None:
        for name, value in answer.variables.items():
            self.values.setdefault(name, value)
        if self._is_pending(self._steps):
            missing = [ask.name for ask in asks(self._steps) if ask.name not in self.values]
            raise ProgramError(f"The gateway's answer has no value for {', '.join(missing)}.")
        self.nodes += [node.later(begun_s) for node in answer.nodes]
        self.usage += answer.usage

    def _own(self, *, is_last: bool) -> dict[str, Any]:
        """Which session, if one is gone on with or will be."""
        if self._id is not None:
            return {"session": {"id": self._id, "ttl_s": 0 if is_last else TTL_S}}
        return {} if is_last else {"session": {"ttl_s": TTL_S}}

    def _seed(self) -> dict[str, Any]:
        """A node's noise depends on its place in its request; so each request has its own seed."""
        seed, number = self._request.sampling.get("seed"), self.usage.requests
        if seed is None or number == 0:
            return {}
        digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=7).digest()
        own = int.from_bytes(digest, "big")
        return {"sampling": {**self._request.sampling, "seed": own}}
