"""A doctor before a fleet of one or two workers, by hand: what they hold is what a test says."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from gateway.doctor.doctor import Asked, Doctor, DoctorSettings, Visit
from gateway.doctor.finding import Finding
from gateway.doctor.prompt import ChatParts, TextParts
from gateway.doctor.served import Served
from gateway.fleet.departures import Departure
from gateway.routing.prefix import Chain, Scope, chat_chain, text_chain

LEAD = 1024
LONG = " ".join(f"Sentence {word} says what the agent must do." for word in "abcdefghijklmnop")
ANSWER = {"role": "assistant", "content": "That was a good question, and here is all of it."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def tool(name: str, described: str = "Does it.") -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}}
    function = {"name": name, "description": described, "parameters": parameters}
    return {"type": "function", "function": function}


@dataclass
class Workers:
    """What the doctor is told of the fleet."""

    incarnations: dict[str, str] = field(default_factory=lambda: {"w0": "a", "w1": "a"})
    held: set[tuple[str, bytes]] = field(default_factory=set)
    tokens: dict[bytes, int] = field(default_factory=dict)
    left: dict[tuple[str, bytes], Departure] = field(default_factory=dict)

    def incarnation(self, worker: str) -> str | None:
        return self.incarnations.get(worker)

    def holds(self, worker: str, digest: bytes) -> bool:
        return (worker, digest) in self.held

    def num_tokens(self, worker: str, digest: bytes) -> int | None:
        return self.tokens.get(digest)

    def departure(self, worker: str, digest: bytes) -> Departure | None:
        return self.left.get((worker, digest))


@dataclass
class Scene:
    """Prompts one after the other, a second apart. A token is four bytes."""

    settings: DoctorSettings = field(default_factory=DoctorSettings)
    workers: Workers = field(default_factory=Workers)
    now: float = 100.0
    doctor: Doctor = field(init=False)
    chain: Chain = field(init=False)

    def __post_init__(self) -> None:
        self.doctor = Doctor(self.settings, b"secret", self.workers)

    def chat(self, messages: list[dict[str, Any]], **how: Any) -> Finding:
        """Ask and answer a chat. cached: bytes of it that came from the cache."""
        return self._answered(self.asked(messages, **how), how)

    def asked(self, messages: list[dict[str, Any]], **how: Any) -> Visit:
        """A chat that has had no output yet."""
        tools = msgspec.json.encode(how["tools"]) if how.get("tools") else b""
        model, tenant = how.get("model", "m"), how.get("tenant", "t")
        namespace = how.get("namespace", tenant.encode())
        self.chain = chat_chain(Scope(model, namespace), messages, tools, how.get("kwargs"))
        encoded = msgspec.json.encode(messages)
        self.now += 1
        parts = partial(ChatParts, encoded, tools)
        whole = how.get("is_whole", True)
        asked = Asked(tenant, model, namespace, self.chain, parts if whole else None, whole)
        return self.doctor.asked(asked, self.now)

    def text(self, text: str, **how: Any) -> Finding:
        """The same of a plain prompt."""
        self.chain = text_chain(Scope("m", b"t"), text, LEAD)
        self.now += 1
        asked = Asked("t", "m", b"t", self.chain, lambda: TextParts(text, self.chain.places))
        return self._answered(self.doctor.asked(asked, self.now), how)

    def _answered(self, visit: Visit, how: dict[str, Any]) -> Finding:
        served = Served(
            self.chain.num_bytes // 4,
            how.get("cached", 0) // 4,
            how.get("worker", "w0"),
            how.get("incarnation", "a"),
            how.get("route", "hit"),
            how.get("has_cache", True),
        )
        return self.doctor.answered(visit, served, self.now)
