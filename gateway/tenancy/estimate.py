"""How many tokens a request may take, before any worker has seen it. Pure.

The gateway has no tokenizer. Four bytes of UTF-8 to a token is near for English and high for
Chinese; the quota is settled by what the worker counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.request import Ask, ChatPrompt, PairPrompt, ProgramPrompt, Prompt, TextPrompt, Want

_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens of all prompts of a request, and of all its choices.

    asked: whether the client named the output; else it is the gateway's guess. has_steps: it is a
    program, and these are the bounds of its steps together.
    """

    prompt_tokens: int
    output_tokens: int
    asked: bool = True
    has_steps: bool = False

    @property
    def tokens(self) -> int:
        """In all."""
        return self.prompt_tokens + self.output_tokens


def estimate(asks: Iterable[Ask], default_output_tokens: int) -> Estimate:
    """What the asks of one request may take together."""
    prompt_tokens = output_tokens = 0
    asked, has_steps = True, False
    for ask in asks:
        max_tokens = ask.decoding.stopping.max_tokens
        if isinstance(ask.prompt, ProgramPrompt):
            prompt_tokens += ask.prompt.prompt_tokens
            output_tokens += ask.prompt.tokens
            has_steps = True
            continue
        prompt_tokens += estimated_prompt_tokens(ask.prompt)
        if ask.want is Want.GENERATION:
            output_tokens += ask.decoding.n * (max_tokens or default_output_tokens)
            asked = asked and max_tokens is not None
    return Estimate(prompt_tokens, output_tokens, asked, has_steps)


def estimated_prompt_tokens(prompt: Prompt) -> int:
    """About so many tokens; of token ids exactly, of a program what it begins with."""
    if isinstance(prompt, ChatPrompt):
        num_bytes = len(prompt.messages) + len(prompt.tools)
    elif isinstance(prompt, TextPrompt):
        num_bytes = len(prompt.text.encode())
    elif isinstance(prompt, ProgramPrompt):
        num_bytes = prompt.text_bytes
    elif isinstance(prompt, PairPrompt):
        texts = (prompt.query, prompt.document, prompt.instruction)
        num_bytes = sum(len(text.encode()) for text in texts)
    else:
        num_bytes = len(prompt.token_ids)  # four bytes each
    return -(-num_bytes // _BYTES_PER_TOKEN)
