"""What an analysis finds: plain values, which JSON, text and page tell alike.

Lengths are tokens; shares are parts of 1.
"""

from __future__ import annotations

import msgspec


class Broken(msgspec.Struct, frozen=True):
    """A line that was left out. line: from 1."""

    line: int
    reason: str


class Traffic(msgspec.Struct, frozen=True):
    """What was read. is_whole: the file's end was reached; else why_not says what stopped it.

    counted: how tokens are counted. span_s: from the first to the last request; None: no times.
    sessions: lines that were one; when they begin is made up. backwards: requests earlier than the
    one before them. block: tokens of the blocks by which prompts are known; None: by themselves.
    """

    file: str
    requests: int
    sessions: int
    broken: int
    broken_lines: list[Broken]
    prompt_tokens: int
    distinct_tokens: int
    counted: str
    span_s: float | None
    backwards: int
    block: int | None
    is_whole: bool
    why_not: str = ""


class Spread(msgspec.Struct, frozen=True):
    """Of all requests, so many have at most this."""

    mean: float
    p10: int
    p50: int
    p90: int
    p99: int
    most: int


class Bar(msgspec.Struct, frozen=True):
    """Prompts, and shared beginnings, of more than `above` and at most `up_to` tokens."""

    above: int
    up_to: int
    prompts: int
    shared: int


class Sharing(msgspec.Struct, frozen=True):
    """Tokens of prompts that an earlier prompt began with, too; at least one is always computed.

    paged: in whole pages only. forks_inside: shared beginnings that end inside a page.
    """

    page_size: int
    shared_tokens: int
    paged_tokens: int
    share: float
    paged_share: float
    forks_inside: int


class SizePoint(msgspec.Struct, frozen=True):
    """Hit rates of one cache of that size. best: what no rule of eviction can beat."""

    cache_tokens: int
    radix: float
    block: float
    best: float


class Hot(msgspec.Struct, frozen=True):
    """A beginning that many prompts share. inside: the number of the one it goes on from; None: 0.

    begin, end: where its own part lies. saved_tokens: what its repetitions need not compute.
    digest: of everything up to its end. text: only where it may be shown.
    """

    number: int
    inside: int | None
    role: str
    begin: int
    end: int
    requests: int
    saved_tokens: int
    digest: str
    text: str = ""


class FleetPoint(msgspec.Struct, frozen=True):
    """A simulated fleet. pooled: one cache of all its workers' size. imbalance: max over mean.

    busy: what is computed of what could be, in the log's time; above 1 work piles up.
    """

    workers: int
    policy: str
    cache_tokens: int
    hits: float
    pooled: float
    imbalance: float
    busy: float


class Fleets(msgspec.Struct, frozen=True):
    """What was simulated. requests: the first ones of the log. has_times: they came as logged.

    prefill_tokens_s: what a worker computes.
    """

    requests: int
    has_times: bool
    prefill_tokens_s: float
    points: list[FleetPoint]


class Ailment(msgspec.Struct, frozen=True):
    """What keeps prompts from being shared. lost_tokens: that would have been; line: an example."""

    reason: str
    place: str
    requests: int
    lost_tokens: int
    request: int
    sentence: str


class Checkup(msgspec.Struct, frozen=True):
    """What the doctor says. reasons: prompts by reason; ailments: the dearest first."""

    reasons: dict[str, int]
    ailments: list[Ailment]


class Findings(msgspec.Struct, frozen=True):
    """All of it. full_tokens: of the cache that has 99 % of an unlimited one's hits.

    checkup None: prompts are known by their blocks only. fleets None: not asked for.
    """

    traffic: Traffic
    prompts: Spread
    shared: Spread
    lengths: list[Bar]
    sharing: Sharing
    sizes: list[SizePoint]
    full_tokens: int
    hot: list[Hot]
    checkup: Checkup | None
    fleets: Fleets | None
    advice: list[str]
