"""Agents' and short traffic on each cache: which one wins, and by how much.

Each cache has a gateway and a worker of its own, all running; a round sends the same prompts to
one after the other and begins with another one each time. A ratio is the median over rounds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from loadtest.load.bench import Bench, Stand, standing
from loadtest.load.figures import Figures
from loadtest.load.kinds import Kind
from loadtest.load.prompts.agent import Agent
from loadtest.load.prompts.chat import Short
from loadtest.report import Report, milliseconds

NAME = "scenarios"
COLUMNS = ("traffic", "cache", "requests/s", "of the best", "TTFT p50", "TTFT p90", "hit rate")
CACHES = ("radix", "block", "off")
AGENT, SHORT = "agent", "short"
# A difference of less than this is none.
_NOTHING = 0.03


@dataclass(frozen=True, slots=True)
class Shape:
    """The traffic by name, and how often it is sent."""

    kinds: Mapping[str, Kind] = field(
        default_factory=lambda: {
            AGENT: Agent(agents=1, sessions=2, turns=3, output_tokens=24),
            SHORT: Short(num_prompts=24, output_tokens=16),
        }
    )
    rounds: int = 3
    concurrency: int = 2
    threads: int = 2
    seed: int = 0


def quick() -> Shape:
    """Little traffic, once."""
    agent = Agent(agents=1, sessions=2, turns=2, system_tokens=200, tools=2, output_tokens=4)
    kinds: Mapping[str, Kind] = {AGENT: agent, SHORT: Short(num_prompts=6, output_tokens=4)}
    return Shape(kinds, rounds=1)


# By traffic and cache: the figures of each round.
Outcomes = Mapping[str, Mapping[str, Sequence[Figures]]]


def measure(model: str, shape: Shape, progress: Callable[[str], None]) -> Outcomes:
    """Returns the figures of all rounds. Raises LoadTestError."""
    with ExitStack() as stack:
        benches = {
            cache: stack.enter_context(standing(Stand(model, cache, threads=shape.threads)))
            for cache in CACHES
        }
        return {
            name: asyncio.run(_rounds(kind, benches, shape, progress))
            for name, kind in shape.kinds.items()
        }


async def _rounds(
    kind: Kind, benches: Mapping[str, Bench], shape: Shape, progress: Callable[[str], None]
) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {cache: [] for cache in benches}
    for number in range(shape.rounds):
        rng = random.Random(f"{shape.seed} round {number}")
        conversations = kind.conversations(rng)
        for cache in rotated(tuple(benches), number):
            progress(f"{type(kind).__name__}, round {number + 1} of {shape.rounds}: {cache}")
            told = await benches[cache].measure(conversations, shape.concurrency)
            found[cache].append(told)
    return found


def rotated(names: Sequence[str], by: int) -> list[str]:
    """Returns them in order, another one first each time."""
    first = by % len(names)
    return [*names[first:], *names[:first]]


def over(outcomes: Mapping[str, Sequence[Figures]], one: str, other: str) -> float:
    """Returns how many times as many requests a second: the median of the rounds' ratios."""
    pairs = zip(outcomes[one], outcomes[other], strict=True)
    return median(a.requests_per_s / b.requests_per_s for a, b in pairs)


def best(outcomes: Mapping[str, Sequence[Figures]]) -> str:
    """Returns the cache with the most requests a second, by the median of the rounds."""
    return max(outcomes, key=lambda cache: median(x.requests_per_s for x in outcomes[cache]))


def advice(outcomes: Outcomes) -> str:
    """Returns what follows, in sentences."""
    agent, short = outcomes[AGENT], outcomes[SHORT]
    gain, margin = over(agent, "radix", "off"), over(agent, "radix", "block")
    told = f"Agents' traffic on radix is served {gain:.2f} x as fast as without a cache, and "
    if abs(margin - 1) < _NOTHING:
        told += "as fast as on block. "
    else:
        told += f"{margin:.2f} x as fast as on block. "
    cost = over(short, "off", "radix") - 1
    if cost > _NOTHING:
        told += f"Short prompts that share nothing pay {cost:.0%} for the cache: switch it off."
    elif cost < -_NOTHING:
        told += "Short prompts that share nothing were no slower with the cache: leave it on."
    else:
        told += "Short prompts that share nothing pay nothing to speak of: leave it on."
    return told


def report(outcomes: Outcomes) -> Report:
    """Returns a row for each traffic and cache, and who wins."""
    rows = [_row(name, cache, found) for name, found in outcomes.items() for cache in found]
    summary: dict[str, float | str] = {
        "agent_best": best(outcomes[AGENT]),
        "agent_radix_over_block": over(outcomes[AGENT], "radix", "block"),
        "agent_radix_over_off": over(outcomes[AGENT], "radix", "off"),
        "short_best": best(outcomes[SHORT]),
        "short_off_over_radix": over(outcomes[SHORT], "off", "radix"),
    }
    return Report(NAME, COLUMNS, rows, summary)


def _row(name: str, cache: str, found: Mapping[str, Sequence[Figures]]) -> list[str]:
    own = found[cache]
    return [
        name,
        cache,
        f"{median(one.requests_per_s for one in own):.2f}",
        f"{over(found, cache, best(found)):.0%}",
        milliseconds(median(one.ttft.p50 or 0.0 for one in own)),
        milliseconds(median(one.ttft.p90 or 0.0 for one in own)),
        f"{median(one.hit_rate or 0.0 for one in own):.0%}",
    ]
