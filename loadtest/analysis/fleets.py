"""The log's traffic on fleets that are simulated: by how many workers, under which rule.

The gateway's own router decides, in virtual time (`loadtest.simulation`). It knows prompts by their
messages, as it does live; blocks by where prompts part, cut where they are long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.config import RoutingConfig
from gateway.tenant_config import PolicyConfig
from loadtest.analysis.findings import FleetPoint, Fleets
from loadtest.analysis.survey import Kept, Survey
from loadtest.analysis.tree import Grain, Node
from loadtest.fake.engine import Pace
from loadtest.replay import Served
from loadtest.simulation import Setting, Simulation, pooled_hits
from loadtest.traces import Piece, Recorded

POLICIES = ("cost", "consistent", "session", "least_loaded", "round_robin")
USUAL = ("cost", "consistent", "round_robin")
OUTPUT_TOKENS = 128
# Boundaries are messages, and all are named.
ALL_BOUNDARIES = 1024
PREFILL_TOKENS_S = Pace().prefill_tokens_s
CUT_TOKENS = 512
MAX_CUTS = 32
# Where a log has no times, prompts come at this part of what one worker computes.
BUSY = 0.5


@dataclass(frozen=True, slots=True)
class FleetWish:
    """workers: fleets of so many. policies: each for all of them. cache_tokens: of one worker."""

    workers: tuple[int, ...]
    policies: tuple[str, ...]
    cache_tokens: int
    pace: Pace = field(default_factory=Pace)


def recorded(survey: Survey, pace: Pace) -> list[Recorded]:
    """The first requests as the simulation and a replay take them, in the order of their times."""
    kept = survey.kept
    lengths = [survey.tokens(one) for one in survey.lengths[: len(kept)]]
    cut = _cut(lengths)
    has_times = _has_times(kept)
    first, at_s, found = kept[0].at_s or 0.0, 0.0, list[Recorded]()
    for one, length in zip(kept, lengths, strict=True):
        if has_times:
            at_s = max((one.at_s or first) - first, 0.0)
        pieces = _pieces(one, survey.tree.grain, cut, length)
        found.append(Recorded(at_s, pieces, one.output_tokens or OUTPUT_TOKENS))
        at_s += length / (pace.prefill_tokens_s * BUSY)
    return sorted(found, key=lambda request: request.at_s)


def simulated(survey: Survey, wish: FleetWish) -> Fleets:
    """Every fleet under every rule, and one cache of its size."""
    requests = recorded(survey, wish.pace)
    points = []
    for workers in wish.workers:
        pooled = pooled_hits(requests, workers * wish.cache_tokens)
        for policy in wish.policies if workers > 1 else wish.policies[:1]:
            setting = Setting(workers, wish.cache_tokens, routing_of(policy), pace=wish.pace)
            served = Simulation(setting).run(requests)
            points.append(
                FleetPoint(
                    workers,
                    policy,
                    wish.cache_tokens,
                    hit_rate(served),
                    pooled,
                    _imbalance(served, workers),
                    _busy(served, workers * wish.pace.prefill_tokens_s),
                )
            )
    has_times = _has_times(survey.kept)
    return Fleets(len(requests), has_times, wish.pace.prefill_tokens_s, points)


def routing_of(policy: str) -> RoutingConfig:
    """The gateway's settings with that rule."""
    return RoutingConfig(
        policy=PolicyConfig(policy),  # type: ignore[arg-type]
        max_boundaries=ALL_BOUNDARIES,
    )


def hit_rate(served: Sequence[Served]) -> float:
    """Cached tokens of all prompt tokens."""
    return sum(one.cached_tokens for one in served) / sum(one.prompt_tokens for one in served)


def _imbalance(served: Sequence[Served], workers: int) -> float:
    """Computed tokens of the busiest worker against the mean."""
    computed: Counter[str] = Counter()
    for one in served:
        computed[one.worker] += one.computed_tokens
    return max(computed.values()) * workers / max(sum(computed.values()), 1)


def _busy(served: Sequence[Served], tokens_s: float) -> float:
    """Computed tokens against what the fleet could compute meanwhile."""
    span_s = max(one.at_s for one in served) - min(one.at_s for one in served)
    computed = sum(one.computed_tokens for one in served)
    return computed / (span_s * tokens_s) if span_s else 0.0


def _has_times(kept: Sequence[Kept]) -> bool:
    return all(one.at_s is not None for one in kept)


def _cut(lengths: Sequence[int]) -> int:
    """Tokens after which a run is cut, so that a prompt has not too many pieces."""
    mean, cut = sum(lengths) / len(lengths), CUT_TOKENS
    while mean / cut > MAX_CUTS:
        cut *= 2
    return cut


def _pieces(kept: Kept, grain: Grain, cut: int, length: int) -> tuple[Piece, ...]:
    """The prompt up to each message's end, or each place where a run is cut."""
    path = kept.node.path()
    places = [mark.end for mark in kept.marks] or _cuts(path, grain, cut)
    found, tokens, number = list[Piece](), 0, 0
    for place in places:
        while number < len(path) - 1 and path[number].end * grain.span < place:
            number += 1
        end = min(place // grain.per_token, length)
        if end > tokens:  # the tree says what lies in front: the node, and how far into it
            found.append(Piece(f"{path[number].number}.{place}", end))
            tokens = end
    return tuple(found) or (Piece(f"{kept.node.number}", max(length, 1)),)


def _cuts(path: Sequence[Node], grain: Grain, cut: int) -> list[int]:
    """Ends of runs, and multiples of `cut` inside long ones; units."""
    places = list[int]()
    for node in path:
        begin, end = node.begin * grain.span, node.end * grain.span
        step = -(-cut // grain.span) * grain.span
        places += range(begin // step * step + step, end, step)
        places.append(end)
    return places
