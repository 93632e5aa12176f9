"""A request as it comes from a gateway, and what goes back. Plain values; the link translates."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from worker.request import FinishReason, Sampling, TokenLogprobs, TokenScore


@dataclass(frozen=True, slots=True)
class ChatInput:
    """JSON text of the messages, the tools and further template variables; empty: none."""

    messages: bytes
    tools: bytes = b""
    template_kwargs: bytes = b""


@dataclass(frozen=True, slots=True)
class StopRules:
    """When a choice ends, as asked. max_tokens None: as far as the window allows."""

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    include_stop: bool = False


class Unit(enum.Enum):
    """In what a boundary's place is counted, by the kind of prompt that it belongs to."""

    MESSAGES = "messages"
    TOKENS = "tokens"
    CHARS = "chars"


@dataclass(frozen=True, slots=True)
class NamedBoundary:
    """A digest of the gateway's for everything up to a place in the prompt."""

    digest: bytes
    count: int
    unit: Unit = Unit.MESSAGES


@dataclass(frozen=True, slots=True)
class Resumed:
    """What another worker has given out of a choice.

    tokens: packed. text_chars: code points of text. finished: it has ended there.
    """

    choice: int
    tokens: bytes
    text_chars: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """What the tenant may have. priority: a higher one is served sooner.

    weight: its part of work and cache. cache_share, cache_cap: fractions of the cache that it keeps
    while active, and that may lie unused for it.
    """

    priority: int = 0
    weight: float = 1.0
    cache_share: float = 0.0
    cache_cap: float = 1.0


@dataclass(frozen=True, slots=True)
class Submission:
    """One request. prompt: a chat, plain text, or packed token ids. seed None: draw one.

    expected_tokens: what the gateway expects to be computed of the prompt. resume: choices to go
    on with; one that isn't named starts afresh. public_messages: how many of a chat's first
    messages (and the tools) are shared by all namespaces. score_prompt: whether the scores of the
    prompt's tokens are wanted, with the first choice that is open.
    """

    request_id: int
    prompt: ChatInput | str | bytes
    sampling: Sampling = field(default_factory=Sampling)
    seed: int | None = None
    rules: StopRules = field(default_factory=StopRules)
    n: int = 1
    top_logprobs: int | None = None
    trace_id: str = ""
    tenant: str = ""
    namespace: bytes = b""
    boundaries: tuple[NamedBoundary, ...] = ()
    expected_tokens: int = 0
    resume: tuple[Resumed, ...] = ()
    share: Share = field(default_factory=Share)
    public_messages: int = 0
    score_prompt: bool = False

    @property
    def num_open(self) -> int:
        """Choices that are still to be computed."""
        return max(self.n - sum(one.finished for one in self.resume), 0)


@dataclass(frozen=True, slots=True)
class Output:
    """New tokens of one choice. stop: the stop string that ended it.

    prompt_scores: of the prompt's second token and those behind it, by their ids.
    """

    choice: int
    text: str
    tokens: list[int]
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish: FinishReason | None = None
    stop: str | None = None
    prompt_scores: list[tuple[int, TokenScore]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request: prompt (once), of them cached, and generated over all choices."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
