"""Programs run the plain way: each step at once, on the whole text in front of it. The oracle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.pando.program_server import CLOSED, chosen, generated, opened


@dataclass
class PlainAsk:
    name: str
    node: dict[str, Any]
    choices: list[str] | None = None


def gen(name: str, max_tokens: int = 128, n: int = 1) -> PlainAsk:
    return PlainAsk(name, {"max_tokens": max_tokens, "n": n})


def select(name: str, choices: list[str]) -> PlainAsk:
    return PlainAsk(name, {}, choices)


@dataclass
class PlainState:
    variables: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    whole: str = ""
    names: dict[str, str] = field(default_factory=dict)
    num_forks: int = 0

    def __iadd__(self, other: str | PlainAsk) -> PlainState:
        if isinstance(other, str):
            self.whole += other
            return self
        full = f"{other.name}#{self.path}" if self.path else other.name
        if other.choices is not None:
            value: Any = chosen(self.whole, other.choices)
        else:
            n = other.node["n"]
            node = {"name": full, "max_tokens": other.node["max_tokens"]}
            value = [generated(self.whole, node, index) for index in range(n)]
            value = value if n > 1 else value[0]
        self.whole += value if isinstance(value, str) else value[0]
        self.variables[full] = value
        self.names[other.name] = full
        return self

    def __getitem__(self, name: str) -> Any:
        return self.variables[self.names[name]]

    def fork(self, n: int) -> list[PlainState]:
        number, self.num_forks = self.num_forks, self.num_forks + 1
        front = f"{self.path}." if self.path else ""
        return [
            PlainState(self.variables, f"{front}{number}.{i}", self.whole, dict(self.names))
            for i in range(n)
        ]

    @contextmanager
    def user(self) -> Iterator[None]:
        self.whole += opened("user")
        yield
        self.whole += CLOSED

    @contextmanager
    def assistant(self) -> Iterator[None]:
        self.whole += opened("assistant")
        yield
        self.whole += CLOSED
