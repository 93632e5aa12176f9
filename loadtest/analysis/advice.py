"""What the figures mean for whoever sets up a fleet, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadtest.analysis.findings import (
    Checkup,
    Fleets,
    Sharing,
    SizePoint,
    Spread,
    Traffic,
)

# Below the first no cache pays; from the second on a radix cache does.
LITTLE, MUCH = 0.20, 0.50
# Longer median prompts are worth a trial of dflash; it pays from LONG_FROM tokens.
LONG_P50, LONG_FROM, SHORT_P50 = 2048, 4096, 1024
# Of all prompt tokens: what radix has over blocks is worth a word.
TELLING = 0.01
# Points of hit rate that a fleet may lose to one big cache.
NEAR = 0.02


def sharing_advice(sharing: Sharing, block: int | None) -> str:
    """Which cache the shared part calls for."""
    told = f"{sharing.share:.0%} of all prompt tokens begin an earlier prompt, too"
    gain = sharing.share - sharing.paged_share
    if sharing.share < LITTLE:
        return (
            f"{told}, under {LITTLE:.0%}: a prefix cache gains little here. Look at what should "
            "be mended first; if nothing is, take whatever is simplest."
        )
    if block is not None:
        more = f"blocks of {block} do not tell how far radix goes beyond whole pages"
    elif gain >= TELLING:
        more = f"radix has {gain:.1%} of all tokens more than blocks of {sharing.page_size}"
    else:
        more = f"radix and blocks of {sharing.page_size} differ by {gain:.1%} only"
    if sharing.share > MUCH:
        return f"{told}, over half: set prefix_cache to radix; {more}."
    return f"{told}, between {LITTLE:.0%} and half: a cache pays; {more}."


def size_advice(points: Sequence[SizePoint], sharing: Sharing, full_tokens: int) -> Iterator[str]:
    """How large the cache should be."""
    if sharing.share < LITTLE or not points:
        return
    yield (
        f"A cache of {full_tokens:,} tokens has 99% of the hits that an unlimited one has; "
        "`pando plan` says what memory that takes."
    )
    worst = max(points, key=lambda one: one.best - one.radix)
    if worst.best - worst.radix > 0.1:
        yield (
            f"With {worst.cache_tokens:,} tokens, what is used longest ago goes too early: "
            f"{worst.radix:.0%} of hits where {worst.best:.0%} are possible. Send what shares a "
            "prefix together, or take a larger cache."
        )


def length_advice(prompts: Spread) -> str:
    """Whether dflash is worth a trial."""
    if prompts.p50 > LONG_P50:
        return (
            f"The median prompt has {prompts.p50:,} tokens, above {LONG_P50:,}: try dflash auto, "
            f"and compare peak memory, latency and throughput. It pays from about {LONG_FROM:,} "
            "tokens and 16 sequences on."
        )
    if prompts.p50 < SHORT_P50:
        return (
            f"The median prompt has {prompts.p50:,} tokens, under {SHORT_P50:,}: leave dflash off; "
            "it can cost time to first token."
        )
    return f"The median prompt has {prompts.p50:,} tokens: dflash gains little; leave it off."


def fleet_advice(fleets: Fleets | None) -> Iterator[str]:
    """Which rule holds the hits together, and from how many workers on they are lost."""
    if fleets is None or not (several := [one for one in fleets.points if one.workers > 1]):
        return
    for workers in sorted({one.workers for one in several}):
        points = [one for one in several if one.workers == workers]
        best = max(points, key=lambda one: one.hits)
        worst = min(points, key=lambda one: one.hits)
        told = f"{workers} workers with {best.cache_tokens:,} cached tokens each: "
        told += f"policy {best.policy} has {best.hits:.1%} of hits, one cache of their size "
        told += f"{best.pooled:.1%}"
        if best.hits - worst.hits > NEAR:
            told += f"; {worst.policy} has {worst.hits:.1%}"
        if best.busy > 1:
            told += (
                f". Work piles up there: {fleets.prefill_tokens_s:,.0f} tokens a second each are "
                "not enough (--prefill-tokens-s), and hits say little"
            )
        yield f"{told}."


def mending_advice(checkup: Checkup | None, traffic: Traffic) -> Iterator[str]:
    """What in the prompts to change first."""
    if checkup is None or not checkup.ailments:
        return
    first = checkup.ailments[0]
    share = first.lost_tokens / traffic.prompt_tokens
    if share >= TELLING:
        yield (
            f"Mend this first: {first.reason} at {first.place or 'the prompt'}, {first.requests:,} "
            f"requests, {first.lost_tokens:,} tokens ({share:.1%}). {first.sentence}"
        )
