"""What is asked of the engine: sampling, stopping, and one sequence's identity. Plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class FinishReason(enum.Enum):
    """Why a sequence ended by itself."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. Defaults draw from the model's own distribution.

    temperature 0 is greedy. top_p 1, top_k 0 and min_p 0 keep every token. Noise depends on
    (seed, choice, position) only, so that another worker continues a stream with the same result.
    logit_bias is added to the logits of the given token ids.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    logit_bias: dict[int, float] = field(default_factory=dict)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature == 0.0

    @property
    def needs_history(self) -> bool:
        """Whether a penalty looks at the tokens so far."""
        return bool(
            self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        )


@dataclass(frozen=True, slots=True)
class Stopping:
    """When a sequence ends, as far as token ids tell.

    max_tokens is already cut to the model's window. stop_token_ids hold the model's
    end-of-sequence ids unless the request ignores them; none of them is sampled before min_tokens.
    """

    max_tokens: int
    stop_token_ids: frozenset[int] = frozenset()
    min_tokens: int = 0

    def ends(self, token: int, output_len: int) -> FinishReason | None:
        """Returns why a sequence ends with its output_len-th generated token, if it does."""
        if token in self.stop_token_ids and output_len > self.min_tokens:
            return FinishReason.STOP
        return FinishReason.LENGTH if output_len >= self.max_tokens else None


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Logprob of the sampled token and of the best alternatives, best first."""

    sampled: tuple[int, float]
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A prompt token's logprob, given those before it, and its rank among all ids, from 1.

    best: the most likely id and its logprob, where that is another one.
    """

    logprob: float
    rank: int
    best: tuple[int, float] | None = None


# Of a prompt's first token, whose probability nothing gives.
UNSCORED = TokenScore(0.0, 0)
