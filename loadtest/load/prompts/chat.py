"""Conversations of several turns behind one system prompt, and short prompts that share nothing."""

from __future__ import annotations

import random
from typing import Annotated

import msgspec
from msgspec import Meta

from loadtest.load.prompt import Conversation, Opening, Turn, dialogue, plain
from loadtest.words import block, sentence

Count = Annotated[int, Meta(ge=1)]


class Chat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """system_tokens: of the system prompt that all conversations share; 0: none."""

    num_conversations: Count = 16
    turns: Count = 4
    system_tokens: Annotated[int, Meta(ge=0)] = 200
    question_tokens: Count = 60
    output_tokens: Count = 64

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """Returns them; the answers in a history have as many tokens as are asked for."""
        system = {"role": "system", "content": sentence(rng, self.system_tokens)}
        opening = Opening("", (system,) if self.system_tokens else ())
        return [
            dialogue(f"chat-{number}", opening, [self._turn(rng) for _ in range(self.turns)])
            for number in range(self.num_conversations)
        ]

    def _turn(self, rng: random.Random) -> Turn:
        question = {"role": "user", "content": sentence(rng, self.question_tokens)}
        answer = {"role": "assistant", "content": sentence(rng, self.output_tokens)}
        return Turn((question,), answer, self.output_tokens)


class Short(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plain prompts, as a chat's template alone would be a shared prefix."""

    num_prompts: Count = 64
    prompt_tokens: Annotated[int, Meta(ge=4)] = 64
    output_tokens: Count = 32

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """Returns prompts of which no two agree in their first three words."""
        names = rng.sample(range(2**26), self.num_prompts)
        return [
            plain(f"short-{number}", "", block(str(name), self.prompt_tokens), self.output_tokens)
            for number, name in enumerate(names)
        ]
