"""Random programs give what a plain interpreter gives, whether they are graphs or sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pando
from tests.pando import plain
from tests.pando.program_server import WORDS, ProgramServer

TEXTS = st.sampled_from(["a", " b\n", "{}", "ü %s ", "<&>", "\\", ""])
WORD = st.sampled_from(WORDS)
STYLES = ("plus", "format", "join", "percent", "choice")
Op = tuple[Any, ...]


def straight_ops() -> st.SearchStrategy[Op]:
    """Without looks at values."""
    return st.one_of(
        st.tuples(st.just("text"), TEXTS),
        st.tuples(st.just("gen"), st.integers(1, 3), st.sampled_from([1, 1, 1, 2])),
        st.tuples(st.just("select"), st.lists(WORD, min_size=1, max_size=3)),
        st.tuples(st.just("read"), st.integers(0, 9), st.sampled_from(STYLES)),
    )


def with_inner(ops: st.SearchStrategy[Op]) -> st.SearchStrategy[Op]:
    bodies = st.lists(ops, max_size=4)
    branches = st.lists(bodies, min_size=1, max_size=3)
    return st.one_of(
        ops, st.tuples(st.just("fork"), branches, st.just([])), st.tuples(st.just("say"), bodies)
    )


def with_looks(ops: st.SearchStrategy[Op]) -> st.SearchStrategy[Op]:
    bodies = st.lists(ops, min_size=1, max_size=4)
    branches = st.lists(bodies, min_size=1, max_size=3)
    looks = st.sampled_from(["equals", "length", "hidden"])
    return st.one_of(
        ops,
        st.tuples(st.just("fork"), branches, branches),
        st.tuples(st.just("say"), bodies),
        st.tuples(st.just("if"), st.integers(0, 9), WORD, looks, bodies),
    )


STRAIGHT = st.lists(st.recursive(straight_ops(), with_inner, max_leaves=12), max_size=6)
LOOKING = st.lists(st.recursive(straight_ops(), with_looks, max_leaves=12), min_size=3, max_size=8)


@dataclass
class Player:
    """Writes operations with either interface. visible: (state, name) of what can be read."""

    api: ModuleType
    is_chat: bool
    visible: list[tuple[Any, str]] = field(default_factory=list)
    number: int = 0

    def play(self, s: Any, ops: list[Op]) -> None:
        late = []
        for kind, *op in ops:
            if kind == "fork":
                late += self.fork(s, *op)
            elif kind == "say":
                self.say(s, *op)
            elif kind == "if":
                if self.visible and self.look(*op[:3]):
                    self.play(s, op[3])
            elif kind == "text":
                self.append(s, op[0], "user")
            elif kind == "read":
                self.read(s, *op)
            else:
                self.ask(s, kind, *op)
        for state, body in late:
            self.play(state, body)

    def append(self, s: Any, what: Any, role: str) -> None:
        if self.is_chat:
            with getattr(s, role)():
                s += what
        else:
            s += what

    def ask(self, s: Any, kind: str, first: Any, n: int = 1) -> None:
        name = f"v{self.number}"
        self.number += 1
        asked = self.api.gen(name, first, n=n) if kind == "gen" else self.api.select(name, first)
        self.append(s, asked, "assistant")
        if n == 1:
            self.visible.append((s, name))

    def fork(self, s: Any, branches: list[list[Op]], more: list[list[Op]]) -> list[Any]:
        forks = s.fork(len(branches))
        for state, body in zip(forks, branches, strict=True):
            self.play(state, body)
        return list(zip(forks, more, strict=False))

    def say(self, s: Any, body: list[Op]) -> None:
        """In a chat, one assistant's message; nothing within is a message."""
        if not self.is_chat:
            return self.play(s, body)
        with s.assistant():
            inner = replace(self, is_chat=False)
            inner.play(s, body)
        self.number = inner.number
        return None

    def look(self, place: int, word: str, how: str) -> bool:
        state, name = self.visible[place % len(self.visible)]
        if how == "equals":
            return bool(state[name] == word)
        return len(state[name]) > 3 if how == "length" else f"{state[name]}." == f"{word}."

    def read(self, s: Any, place: int, style: str) -> None:
        if not self.visible:
            return
        state, name = self.visible[place % len(self.visible)]
        value = state[name]
        if style == "choice":
            self.ask(s, "select", [value, "-" + value])
            return
        text: dict[str, Callable[[], str]] = {
            "plus": lambda: "<" + value + ">",
            "format": lambda: f"<{value}>{value}",
            "join": lambda: ", ".join([value, "x", value]),
            "percent": lambda: "%s %s" % (value, 1),  # noqa: UP031
        }
        self.append(s, text[style](), "user")


def outcome(ops: list[Op], is_chat: bool) -> plain.PlainState:
    state = plain.PlainState()
    Player(plain, is_chat).play(state, ops)
    return state


def run(ops: list[Op], is_chat: bool, **options: Any) -> pando.Result:
    @pando.program(**options)
    def random_program(s: pando.State) -> None:
        Player(pando, is_chat).play(s, ops)

    return random_program.run()


fast = settings(suppress_health_check=list(HealthCheck), max_examples=100)


@fast
@given(ops=STRAIGHT, is_chat=st.booleans())
def test_without_looks_a_program_is_one_request(
    server: ProgramServer, ops: list[Op], is_chat: bool
) -> None:
    wanted = outcome(ops, is_chat)
    server.bodies.clear()
    result = run(ops, is_chat)
    assert dict(result.variables) == wanted.variables
    assert result.needs is None
    assert result.usage.requests == len(server.bodies) <= 1
    if not is_chat:
        assert result.text() == wanted.whole


@fast
@given(ops=LOOKING, is_chat=st.booleans(), traceable=st.booleans())
def test_looks_at_values_make_a_session_that_gives_the_same(
    server: ProgramServer, ops: list[Op], is_chat: bool, traceable: bool
) -> None:
    wanted = outcome(ops, is_chat)
    result = run(ops, is_chat, traceable=traceable)
    assert dict(result.variables) == wanted.variables
    assert sorted(node.name for node in result.nodes if not node.index) == sorted(result.variables)
    if not is_chat:
        assert result.text() == wanted.whole
    result.graph_svg()


@fast
@given(ops=LOOKING, is_chat=st.booleans())
def test_a_session_that_is_lost_each_time_gives_the_same(
    server: ProgramServer, ops: list[Op], is_chat: bool
) -> None:
    wanted = outcome(ops, is_chat)
    server.loses_sessions = True
    result = run(ops, is_chat, traceable=False)
    assert dict(result.variables) == wanted.variables
