"""From a log's survey to its findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from loadtest.analysis.advice import (
    fleet_advice,
    length_advice,
    mending_advice,
    sharing_advice,
    size_advice,
)
from loadtest.analysis.checkup import Examination
from loadtest.analysis.clairvoyant import best_hits, story
from loadtest.analysis.findings import Bar, Broken, Findings, Fleets, Sharing, SizePoint, Spread
from loadtest.analysis.findings import Traffic as TrafficFound
from loadtest.analysis.fleets import PREFILL_TOKENS_S, USUAL, FleetWish, simulated
from loadtest.analysis.hot import hottest
from loadtest.analysis.log import Log
from loadtest.analysis.recency import Curve
from loadtest.analysis.survey import PAGE_TOKENS, Limits, Survey, quantile
from loadtest.analysis.writing import Pen, Script
from loadtest.fake.engine import Pace

# Of the hits of an unlimited cache.
FULL_SHARE, FLEET_SHARE = 0.99, 0.9
NUM_SIZES = 9


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked. sizes: cache tokens; empty: chosen by the log. workers empty: no fleets.

    worker_tokens: of each worker's cache; None: four of them hold what has nine tenths of the hits.
    """

    log: Path
    pen: Pen
    limits: Limits = field(default_factory=Limits)
    page_tokens: int = PAGE_TOKENS
    sizes: tuple[int, ...] = ()
    workers: tuple[int, ...] = (2, 4, 8)
    policies: tuple[str, ...] = USUAL
    prefill_tokens_s: float = PREFILL_TOKENS_S
    worker_tokens: int | None = None
    show_text: bool = False


@dataclass(frozen=True, slots=True)
class Study:
    """key: of the doctor's digests. say: told what is done now."""

    key: bytes
    say: Callable[[str], None]

    def of(self, wish: Wish) -> Findings:
        """All that the log says. Raises LoadTestError."""
        survey = self.surveyed(wish)
        self.say("Cache sizes")
        exact, paged = survey.curves()
        points = size_points(survey, exact, paged, wish.sizes)
        fleets = self._fleets(survey, exact, wish)
        return _joined(survey, wish, points, exact, fleets)

    def surveyed(self, wish: Wish) -> Survey:
        """The log, read once. Raises LoadTestError."""
        self.say(f"Reading {wish.log.name}")
        examination = Examination(self.key)
        script = Script(wish.pen)
        survey = Survey(Log(wish.log), script, wish.limits, examination, wish.page_tokens)
        survey.run()
        return survey

    def _fleets(self, survey: Survey, exact: Curve, wish: Wish) -> Fleets | None:
        if not wish.workers:
            return None
        self.say("Fleets")
        tokens = wish.worker_tokens or max(
            survey.tokens(exact.size_for(FLEET_SHARE)) // 4, survey.tokens(max(survey.lengths))
        )
        pace = Pace(wish.prefill_tokens_s)
        return simulated(survey, FleetWish(wish.workers, wish.policies, tokens, pace))


def size_points(
    survey: Survey, exact: Curve, paged: Curve, sizes: Sequence[int]
) -> list[SizePoint]:
    """Hit rates of one cache, by its size."""
    unit, total = survey.tree.grain.per_token, sum(survey.lengths)
    told = story(survey.tree, survey.nodes)
    chosen = sizes or _sizes(distinct_tokens(survey))
    return [
        SizePoint(
            size,
            exact.at(size * unit) / total,
            paged.at(size * unit) / total,
            min(best_hits(told, size * unit), exact.most) / total,
        )
        for size in chosen
    ]


def distinct_tokens(survey: Survey) -> int:
    """Tokens of all prompts, what they share counted once."""
    return survey.tokens(survey.tree.size // survey.tree.grain.width * survey.tree.grain.span)


def _sizes(most: int) -> tuple[int, ...]:
    """Halves down from what holds everything, in two digits."""
    rounded = (_two_digits(most / 2**step) for step in range(NUM_SIZES))
    return tuple(sorted({one for one in rounded if one >= PAGE_TOKENS}))


def _two_digits(number: float) -> int:
    """The next larger number of two digits and zeros."""
    step = 10 ** max(len(str(int(number))) - 2, 0)
    return int(-(-number // step) * step)


def _joined(
    survey: Survey, wish: Wish, points: list[SizePoint], exact: Curve, fleets: Fleets | None
) -> Findings:
    traffic, sharing = _traffic(survey), _sharing(survey)
    prompts = _spread(survey, survey.lengths)
    full = survey.tokens(exact.size_for(FULL_SHARE))
    checkup = survey.examination.outcome() if survey.script.has_texts else None
    return Findings(
        traffic=traffic,
        prompts=prompts,
        shared=_spread(survey, survey.shared),
        lengths=_bars(survey),
        sharing=sharing,
        sizes=points,
        full_tokens=full,
        hot=hottest(survey.tree, wish.pen if wish.show_text else None),
        checkup=checkup,
        fleets=fleets,
        advice=[
            *mending_advice(checkup, traffic),
            sharing_advice(sharing, traffic.block),
            *size_advice(points, sharing, full),
            *fleet_advice(fleets),
            length_advice(prompts),
        ],
    )


def _traffic(survey: Survey) -> TrafficFound:
    log, span_s = survey.log, None
    if survey.first_s is not None and survey.last_s is not None:
        span_s = survey.last_s - survey.first_s
    return TrafficFound(
        file=log.path.name,
        requests=len(survey.nodes),
        sessions=log.sessions,
        broken=log.broken,
        broken_lines=[Broken(one.number, one.reason) for one in log.named],
        prompt_tokens=survey.tokens(sum(survey.lengths)),
        distinct_tokens=distinct_tokens(survey),
        counted=survey.script.counted,
        span_s=span_s,
        backwards=survey.backwards,
        block=None if survey.script.has_texts else survey.tree.grain.span,
        is_whole=not survey.why_not,
        why_not=survey.why_not,
    )


def _sharing(survey: Survey) -> Sharing:
    total = sum(survey.lengths)
    shared, paged = sum(survey.shared), sum(survey.paged)
    pairs = zip(survey.shared, survey.paged, strict=True)
    return Sharing(
        page_size=survey.page_tokens,
        shared_tokens=survey.tokens(shared),
        paged_tokens=survey.tokens(paged),
        share=shared / total,
        paged_share=paged / total,
        forks_inside=sum(exact > whole for exact, whole in pairs),
    )


def _spread(survey: Survey, lengths: Sequence[int]) -> Spread:
    ordered = sorted(survey.tokens(one) for one in lengths)
    p10, p50, p90, p99 = (quantile(ordered, share) for share in (0.1, 0.5, 0.9, 0.99))
    return Spread(sum(ordered) / len(ordered), p10, p50, p90, p99, ordered[-1])


def _bars(survey: Survey) -> list[Bar]:
    """By powers of two, from none and 1..16 on."""
    prompts = [survey.tokens(one) for one in survey.lengths]
    shared = [survey.tokens(one) for one in survey.shared]
    edges = [-1, 0, PAGE_TOKENS]
    while edges[-1] < max(prompts):
        edges.append(2 * edges[-1])
    return [
        Bar(
            max(above, 0),
            up_to,
            sum(above < one <= up_to for one in prompts),
            sum(above < one <= up_to for one in shared),
        )
        for above, up_to in pairwise(edges)
    ]
