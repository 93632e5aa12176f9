"""Clients of three tenants that do a little of everything, so that every panel has something."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

MODEL = "smollm2-135m-instruct"
SYSTEMS = {
    "acme": "You are the assistant of Acme, which sells anvils, rockets and roller skates. " * 12,
    "globex": "You answer for Globex in one short sentence, and never about its plans. " * 12,
    "initech": "You sort the reports of Initech by their cover sheets, one after another. " * 12,
}
QUESTIONS = ("What do you sell?", "Who are you?", "Name a tree.", "Count to five.", "Why?")
SCHEMA = {
    "type": "object",
    "properties": {"tree": {"type": "string", "maxLength": 12}, "tall": {"type": "boolean"}},
    "required": ["tree", "tall"],
    "additionalProperties": False,
}
# Tenants by how often they ask.
_WHO = ("acme", "acme", "initech", "globex")


@dataclass
class Clients:
    """Ask until they are cancelled. statuses: of all answers."""

    http: httpx.AsyncClient
    chance: random.Random
    statuses: Counter[str] = field(default_factory=Counter)

    async def run(self, number: int) -> None:
        """One client: one request after the other, with pauses."""
        kinds: list[Callable[[str], Awaitable[None]]] = [
            *(self.turns, self.turns, self.turns, self.schema),
            *(self.alone, self.alone, self.choices, self.wrong, self.leaver),
        ]
        while True:
            who = self.chance.choice(_WHO)
            with suppress(httpx.HTTPError):
                await self.chance.choice(kinds)(who)
            await asyncio.sleep(self.chance.uniform(0.0, 0.5))

    async def turns(self, who: str) -> None:
        """A chat of three turns under the tenant's system prompt."""
        messages = [{"role": "system", "content": SYSTEMS[who]}]
        for _ in range(3):
            messages.append({"role": "user", "content": self.chance.choice(QUESTIONS)})
            told = await self.chat(who, messages=messages, max_tokens=16)
            if told is None:
                return
            messages.append({"role": "assistant", "content": told})

    async def schema(self, who: str) -> None:
        """An answer that conforms to a schema."""
        form = {"type": "json_schema", "json_schema": {"name": "tree", "schema": SCHEMA}}
        asked = [{"role": "user", "content": "Describe a tree."}]
        await self.chat(who, messages=asked, max_tokens=40, response_format=form)

    async def alone(self, who: str) -> None:
        """A long prompt that nobody shares: others' pages go."""
        words = " ".join(str(self.chance.randrange(10_000)) for _ in range(120))
        asked = [{"role": "user", "content": f"What comes next? {words}"}]
        await self.chat(who, messages=asked, max_tokens=8)

    async def choices(self, who: str) -> None:
        """Several long answers at once: the pool is too small for all that run."""
        asked = [{"role": "user", "content": "Tell a long story."}]
        await self.chat(who, messages=asked, max_tokens=240, n=4, temperature=1.0)

    async def leaver(self, who: str) -> None:
        """A client that hangs up in the middle of its stream."""
        asked = [{"role": "user", "content": "Tell a long story."}]
        body = {"model": MODEL, "messages": asked, "max_tokens": 200, "stream": True}
        headers = {"authorization": f"Bearer pnd-{who}"}
        path = "/v1/chat/completions"
        async with self.http.stream("POST", path, json=body, headers=headers) as stream:
            async for _ in stream.aiter_lines():
                break

    async def wrong(self, who: str) -> None:
        """What is refused: a model that isn't there, or a value that can't be."""
        asked = {"messages": [{"role": "user", "content": "Hi"}]}
        more = self.chance.choice(({"model": "none"}, {"temperature": 9}))
        await self.chat(who, **{**asked, **more})

    async def chat(self, who: str, **asked: Any) -> str | None:
        """The text of the first choice; None where it was refused."""
        headers = {"authorization": f"Bearer pnd-{who}"}
        body = {"model": MODEL, **asked}
        response = await self.http.post("/v1/chat/completions", json=body, headers=headers)
        self.statuses[str(response.status_code)] += 1
        if response.status_code != 200:
            return None
        return str(response.json()["choices"][0]["message"]["content"])
