"""How many tokens a byte of a model's prompts makes: learned from finished requests, no tokenizer.

    tokens per byte = sum of prompt tokens / sum of prompt bytes, older requests counting less

It only weighs what no cache holds; what is held is counted in tokens by the worker.
"""

from __future__ import annotations

# Tokens per byte before anything was learned, and how many bytes this belief is worth.
DEFAULT_DENSITY = 0.25
_BELIEF_BYTES = 2048.0
# What a request leaves of the weight of those before it.
_MEMORY = 0.98


class Density:
    """One model's tokens per byte. `initial`: what is believed before the first request ended."""

    def __init__(self, initial: float = DEFAULT_DENSITY):
        self._tokens = initial * _BELIEF_BYTES
        self._bytes = _BELIEF_BYTES

    @property
    def tokens_per_byte(self) -> float:
        """What a byte of prompt makes now."""
        return self._tokens / self._bytes

    def learn(self, num_bytes: int, num_tokens: int) -> None:
        """A prompt of so many bytes had so many tokens."""
        if num_bytes and num_tokens:
            self._bytes = self._bytes * _MEMORY + num_bytes
            self._tokens = self._tokens * _MEMORY + num_tokens
