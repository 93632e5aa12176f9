"""A request as it comes from a gateway, and what goes back. Plain values; the link translates."""

from __future__ import annotations

from dataclasses import dataclass, field

from worker.request import FinishReason, Sampling, TokenLogprobs


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


@dataclass(frozen=True, slots=True)
class NamedBoundary:
    """A digest of the gateway's for everything up to the end of so many messages."""

    digest: bytes
    num_messages: int


@dataclass(frozen=True, slots=True)
class Submission:
    """One request. prompt: a chat, plain text, or packed token ids. seed None: draw one."""

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


@dataclass(frozen=True, slots=True)
class Output:
    """New tokens of one choice. stop: the stop string that ended it."""

    choice: int
    text: str
    tokens: list[int]
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish: FinishReason | None = None
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request: prompt (once), of them cached, and generated over all choices."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
