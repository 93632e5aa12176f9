"""Many tenants, of which few send most: each with a system prompt and a key of its own."""

from __future__ import annotations

import random
from typing import Annotated

import msgspec
from msgspec import Meta

from loadtest.load.prompt import Conversation, Prompt
from loadtest.words import sentence

Count = Annotated[int, Meta(ge=1)]


class Tenants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """skew: Zipf's exponent: tenant k has the weight 1 / k ** skew, so that the first sends most.

    rates: weights in place of it, one for each tenant, as [5, 3, 1]. num_requests: of all.
    """

    tenants: Count = 8
    num_requests: Count = 64
    skew: Annotated[float, Meta(ge=0)] = 1.0
    rates: list[Annotated[float, Meta(ge=0)]] | None = None
    system_tokens: Count = 500
    question_tokens: Count = 60
    output_tokens: Count = 32

    def __post_init__(self) -> None:
        """Refuse weights of which nothing is."""
        if self.rates is not None and sum(self.rates) <= 0:
            raise ValueError("rates is without a number above 0")

    @property
    def weights(self) -> list[float]:
        """By tenant."""
        if self.rates is not None:
            return list(self.rates)
        return [1.0 / number**self.skew for number in range(1, self.tenants + 1)]

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """Returns requests whose tenants are drawn by weight."""
        names = [f"tenant-{number}" for number in range(1, len(self.weights) + 1)]
        systems = {
            name: {"role": "system", "content": sentence(rng, self.system_tokens)} for name in names
        }
        drawn = rng.choices(names, self.weights, k=self.num_requests)
        return [
            (self._prompt(rng, number, tenant, systems[tenant]),)
            for number, tenant in enumerate(drawn)
        ]

    def _prompt(
        self, rng: random.Random, number: int, tenant: str, system: dict[str, str]
    ) -> Prompt:
        question = {"role": "user", "content": sentence(rng, self.question_tokens)}
        body = {"messages": [system, question]}
        return Prompt(f"request-{number}", 0, tenant, body, self.output_tokens)
