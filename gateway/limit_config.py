"""Settings of what one request may bring, what may wait, and how often it is tried again."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.fields import PositiveInt, Seconds, refuse_more


class LimitConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much one request may bring, and how long it may take to.

    head_bytes: the request line and headers together. body_bytes: a worker takes messages of 64 MiB
    at most. idle_s: how long a connection is kept for its next request; longer than those keep it
    who ask, or one that they take up ends under their hands. stall_s: how long a client may take
    nothing of what lies ready for it. json_nodes: strings, objects, lists and further members of a
    body, token ids apart. content_parts: text parts of all messages. prompt_ids: of all prompts.
    documents: pairs that one request has scored, or texts that it has embedded.
    grammar_chars: of a schema, a regex, a grammar or all choices of `structured_outputs`.
    """

    head_bytes: PositiveInt = 64 * 1024
    head_timeout_s: Seconds = 30.0
    body_bytes: Annotated[int, Meta(ge=1, le=60 * 1024 * 1024)] = 8 * 1024 * 1024
    body_timeout_s: Seconds = 60.0
    idle_s: Seconds = 75.0
    stall_s: Seconds = 30.0
    json_depth: PositiveInt = 32
    json_nodes: PositiveInt = 65_536
    content_parts: PositiveInt = 4096
    prompt_ids: PositiveInt = 1_048_576
    messages: PositiveInt = 2048
    choices: PositiveInt = 16
    prompts: PositiveInt = 128
    documents: PositiveInt = 2048
    stop_strings: PositiveInt = 16
    stop_string_chars: PositiveInt = 1024
    stop_token_ids: PositiveInt = 128
    logit_bias: PositiveInt = 1024
    tools: PositiveInt = 128
    grammar_chars: PositiveInt = 262_144
    grammar_choices: PositiveInt = 4096


class ProgramLimitConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How large one program may be.

    depth: forks within forks. branches: of all forks. choices: of a select. n: of a gen. tokens:
    that all its nodes may generate together. session_ttl_s: how long a session may be kept.
    """

    nodes: PositiveInt = 1024
    depth: PositiveInt = 8
    branches: PositiveInt = 256
    choices: PositiveInt = 256
    n: PositiveInt = 64
    tokens: PositiveInt = 65_536
    session_ttl_s: PositiveInt = 600


class QueueConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What waits at the gateway while no worker has credit.

    credit_ahead: of what a worker runs together, how much more it is sent. hold_s: how long a
    request waits for others of its prefix before it is sent. max_wait_s: then 503. ageing_s: a
    wait that lifts a tenant one priority class. bypass_s: how long one prefix may go first.
    max_waiting: of all tenants; then 503. no_worker_s: how long a model whose last worker left, or
    drains, is waited for before requests get 503.
    """

    credit_ahead: Annotated[float, Meta(ge=0)] = 0.25
    hold_s: Annotated[float, Meta(ge=0, le=10)] = 0.0
    max_wait_s: Seconds = 60.0
    ageing_s: Seconds = 10.0
    bypass_s: Seconds = 2.0
    no_worker_s: Annotated[float, Meta(ge=0, le=600)] = 10.0
    max_waiting: PositiveInt = 10_000

    def __post_init__(self) -> None:
        """Refuse a hold that nothing outlasts."""
        refuse_more("hold_s", self.hold_s, "max_wait_s", self.max_wait_s)


class RetryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many retries the gateway allows itself: `burst` at once; requests and time refill it."""

    burst: PositiveInt = 512
    per_request: Annotated[float, Meta(ge=0)] = 0.5
    per_s: Annotated[float, Meta(ge=0)] = 8.0
