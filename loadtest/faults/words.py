"""Texts by seed: sentences, system prompts, tools and talks that no two seeds share."""

from __future__ import annotations

import random
from typing import Any

Message = dict[str, Any]

_SUBJECTS = [
    "the agent",
    "a customer",
    "every refund",
    "the warehouse",
    "this policy",
    "an invoice",
    "the courier",
    "a manager",
    "the contract",
    "each booking",
    "the archive",
    "our supplier",
    "the auditor",
    "a passenger",
]
_VERBS = [
    "must confirm",
    "should never change",
    "usually replaces",
    "may decline",
    "has to describe",
    "keeps",
    "will forward",
    "cannot open",
    "prefers",
    "often repeats",
    "is asked to compare",
    "returns",
]
_OBJECTS = [
    "the original order",
    "all open questions",
    "a signed receipt",
    "the shipping address",
    "two references",
    "the seasonal price list",
    "any further claim",
    "the last answer",
    "a written summary",
    "the red form",
    "their own account",
    "the fee for late changes",
    "a second opinion",
    "the attached report",
]
_ENDS = [
    "before the end of the shift",
    "unless the law says otherwise",
    "without further delay",
    "when the total is above 250 euros",
    "if asked twice",
    "within 14 days",
    "as section 4.2 demands",
    "in the language of the customer",
    "after the check of 2019",
    "since this was agreed",
    "for gold members only",
    "even on holidays",
    "as soon as it is known",
]
_NAMES = ["search", "book", "cancel", "update", "list", "find", "send", "check", "transfer", "rate"]
_THINGS = [
    "order",
    "flight",
    "invoice",
    "ticket",
    "account",
    "hotel",
    "payment",
    "document",
    "user",
    "shipment",
]
_FIELDS = [
    "query",
    "limit",
    "user_name",
    "currency",
    "reason",
    "city",
    "priority",
    "language",
    "include_old",
]


class Writer:
    """Writes from one random source; `mark` words make each writer's texts its own."""

    def __init__(self, rng: random.Random):
        self.rng = rng

    def word(self) -> str:
        """A word that is in no dictionary."""
        syllables = ("ba", "ke", "lo", "mi", "nu", "ra", "so", "ti", "ve", "zo", "pel", "dra")
        return "".join(self.rng.choices(syllables, k=self.rng.randint(2, 4)))

    def sentence(self) -> str:
        """One sentence."""
        pick = self.rng.choice
        text = f"{pick(_SUBJECTS)} {pick(_VERBS)} {pick(_OBJECTS)} of {self.word()} {pick(_ENDS)}"
        return text[0].upper() + text[1:] + "."

    def paragraph(self, least: int = 3, most: int = 7) -> str:
        """Some sentences in a row."""
        return " ".join(self.sentence() for _ in range(self.rng.randint(least, most)))

    def system(self) -> str:
        """A system prompt of a page or so, with headings and a list."""
        name = self.word().capitalize()
        blocks = [f"You are {name}, an assistant of {self.word().capitalize()} Ltd."]
        for number in range(1, self.rng.randint(3, 6)):
            blocks.append(f"## {number}. {self.word().capitalize()}\n{self.paragraph()}")
        blocks.append("\n".join(f"- {self.sentence()}" for _ in range(self.rng.randint(3, 6))))
        return "\n\n".join(blocks)

    def tools(self) -> list[dict[str, Any]]:
        """Three to six tools; no two have one name."""
        names = self.rng.sample([f"{a}_{b}" for a in _NAMES for b in _THINGS], 6)
        return [self.tool(name) for name in names[: self.rng.randint(3, 6)]]

    def tool(self, name: str) -> dict[str, Any]:
        """One tool."""
        fields = self.rng.sample(_FIELDS, self.rng.randint(2, 5))
        kinds = ("string", "integer", "boolean")
        properties = {
            field: {"type": self.rng.choice(kinds), "description": self.sentence()}
            for field in fields
        }
        parameters = {"type": "object", "properties": properties, "required": fields[:1]}
        described = {"name": name, "description": self.paragraph(1, 2), "parameters": parameters}
        return {"type": "function", "function": described}

    def talk(self, turns: int) -> list[Message]:
        """Questions and answers, one more question than answers."""
        messages: list[Message] = []
        for _ in range(turns):
            messages.append({"role": "user", "content": self.paragraph(2, 4)})
            messages.append({"role": "assistant", "content": self.paragraph(2, 5)})
        return [*messages, {"role": "user", "content": self.paragraph(1, 3)}]
