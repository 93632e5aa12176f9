"""An agent's traffic: tools and a system prompt in front, then a history of calls and results.

|<- tools, system: 3-4k tokens, all sessions of one agent ->|<- question ->|<- call, result ->| ...
"""

from __future__ import annotations

import random
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from loadtest.load.prompt import Conversation, Message, Opening, Turn, dialogue
from loadtest.words import WORDS, sentence

Count = Annotated[int, Meta(ge=1)]


class Agent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """agents: distinct tools and system prompts. sessions: in all. turns: requests of a session.

    Lengths in tokens, about; tool_tokens: of one tool's description.
    """

    agents: Count = 2
    sessions: Count = 8
    turns: Count = 6
    system_tokens: Count = 1500
    tools: Count = 12
    tool_tokens: Annotated[int, Meta(ge=50)] = 150
    question_tokens: Count = 60
    result_tokens: Count = 200
    output_tokens: Count = 64

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """Returns the sessions, an agent's beside another's."""
        openings = [self._opening(rng, number) for number in range(self.agents)]
        return [
            dialogue(f"session-{number}", opening, self._turns(rng, opening))
            for number in range(self.sessions)
            for opening in (openings[number % self.agents],)
        ]

    def _opening(self, rng: random.Random, number: int) -> Opening:
        system = f"You are agent {number}. {sentence(rng, self.system_tokens)}"
        names = rng.sample(WORDS, min(self.tools, len(WORDS)))
        tools = tuple(_tool(rng, name, self.tool_tokens) for name in names)
        return Opening("", ({"role": "system", "content": system},), tools)

    def _turns(self, rng: random.Random, opening: Opening) -> list[Turn]:
        asked: tuple[Message, ...] = (
            {"role": "user", "content": sentence(rng, self.question_tokens)},
        )
        turns = []
        for number in range(self.turns):
            name = rng.choice(opening.tools)["function"]["name"]
            call_id = f"call_{number}_{rng.randrange(10**8):08d}"
            turns.append(Turn(asked, _call(rng, name, call_id), self.output_tokens))
            result = sentence(rng, self.result_tokens)
            asked = ({"role": "tool", "tool_call_id": call_id, "content": result},)
        return turns


# What a tool's JSON has beside its words, in tokens.
_FRAME_TOKENS = 45


def _tool(rng: random.Random, name: str, tokens: int) -> dict[str, Any]:
    described = sentence(rng, max(1, tokens - _FRAME_TOKENS))
    properties = {word: {"type": "string"} for word in rng.sample(WORDS, 2)}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": described, "parameters": parameters}
    return {"type": "function", "function": function}


def _call(rng: random.Random, name: str, call_id: str) -> Message:
    arguments = f'{{"{rng.choice(WORDS)}": "{rng.choice(WORDS)}"}}'
    called = {"name": name, "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": called}
    return {"role": "assistant", "content": "", "tool_calls": [call]}
