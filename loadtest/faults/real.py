"""Recorded sessions, replayed as they were, and with one thing wrong.

A file has a session in each line: {session_id, system, tools, messages}. A request is what stands
before each answer of the assistant.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loadtest.faults import values
from loadtest.faults.planted import SPACES, Case, Sent, chat, reordered
from loadtest.faults.words import Message, Writer

_ROLES = ("system", "user", "assistant", "tool")
SHORT_CHARS = 1000
CLEAN = ("hit", "never_seen")


@dataclass(frozen=True, slots=True)
class Session:
    """A recorded talk."""

    system: str
    tools: list[dict[str, Any]]
    messages: list[Message]

    @property
    def turns(self) -> list[int]:
        """Where the assistant answers."""
        found = [at for at, one in enumerate(self.messages) if one["role"] == "assistant"]
        return [at for at in found if at]


def sessions(path: Path, limit: int) -> list[Session]:
    """The first sessions of a file, with what a request may carry."""
    found = []
    with gzip.open(path, "rt") as file:
        for _, line in zip(range(limit), file, strict=False):
            row = json.loads(line)
            messages = [_plain(one) for one in row["messages"] if one["role"] in _ROLES]
            found.append(Session(row["system"] or "", _tools(row["tools"]), messages))
    return found


def clean(session: Session, kind: str) -> Case:
    """The session's requests, one after the other."""
    sent = [_request(session, turn) for turn in session.turns]
    return Case(kind, CLEAN, sent[-1], tuple(sent[:-1]))


def planted(session: Session, rng: random.Random, tenants: Iterator[str]) -> list[Case]:
    """A case of each kind on texts of this session, each of a tenant of its own."""
    if len(session.turns) < 3:
        return []
    return [replace(maker(session, rng), tenant=next(tenants)) for maker in _MAKERS]


def _valued(reason: str, forms: tuple[values.Value, ...], session: Session, rng: Any) -> Case:
    first, second = values.two(rng, forms)
    systems = [f"The present one: {one}.\n{session.system}" for one in (first, second)]
    warm, judged = (
        _request(Session(one, session.tools, session.messages), turn)
        for one, turn in zip(systems, session.turns, strict=False)
    )
    return Case(f"real {reason}", (reason,), judged, (warm,))


def _timestamp(session: Session, rng: random.Random) -> Case:
    return _valued("timestamp", values.TIMES, session, rng)


def _uuid(session: Session, rng: random.Random) -> Case:
    return _valued("uuid", values.UUIDS, session, rng)


def _counter(session: Session, rng: random.Random) -> Case:
    return _valued("counter", values.COUNTERS, session, rng)


def _tool_order(session: Session, rng: random.Random) -> Case:
    tools = session.tools[:]
    while tools == session.tools:
        rng.shuffle(tools)
    return _changed("tool_order", session, Session(session.system, tools, session.messages))


def _key_order(session: Session, _: random.Random) -> Case:
    other = Session(session.system, reordered(session.tools), session.messages)
    return _changed("key_order", session, other)


def _whitespace(session: Session, rng: random.Random) -> Case:
    system = session.system
    while system == session.system:
        system = rng.choice(SPACES)(session.system)
    return _changed("whitespace", session, Session(system, session.tools, session.messages))


def _changed(reason: str, before: Session, after: Session) -> Case:
    turn = before.turns[0]
    return Case(f"real {reason}", (reason,), _request(after, turn), (_request(before, turn),))


def _truncated(session: Session, rng: random.Random) -> Case:
    turns = session.turns
    dropped = rng.choice((1, 2, 3))
    last = session.messages[dropped : turns[-1]]
    # Of a few words nothing much is lost.
    expected = "history_truncated" if len(json.dumps(last)) > SHORT_CHARS else "hit"
    judged = chat(session.system, last, session.tools)
    warm = tuple(_request(session, turn) for turn in turns[:-1])
    return Case("real history_truncated", ("history_truncated", expected), judged, warm)


def _rewritten(session: Session, rng: random.Random) -> Case:
    turns = session.turns
    last = [dict(one) for one in session.messages[: turns[-1]]]
    place = rng.randrange(1, max(turns[-2] - 2, 2))
    last[place] = {**last[place], "content": f"[{Writer(rng).sentence()}]"}
    judged = chat(session.system, last, session.tools)
    warm = tuple(_request(session, turn) for turn in turns[:-1])
    return Case("real history_rewritten", ("history_rewritten",), judged, warm)


def _request(session: Session, turn: int) -> Sent:
    return chat(session.system, session.messages[:turn], session.tools)


def _plain(message: Message) -> Message:
    kept = ("role", "content", "name", "tool_calls", "tool_call_id")
    found = {key: message[key] for key in kept if message.get(key) is not None}
    return found if "content" in found or "tool_calls" in found else {**found, "content": ""}


def _tools(tools: Any) -> list[dict[str, Any]]:
    kept = ("name", "description", "parameters")
    described = [one.get("function", one) for one in tools or []]
    return [
        {"type": "function", "function": {key: one[key] for key in kept if key in one}}
        for one in described
    ]


_MAKERS = (
    *(_timestamp, _uuid, _counter, _tool_order),
    *(_key_order, _whitespace, _truncated, _rewritten),
)
