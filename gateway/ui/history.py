"""Hit rate, time to first token and time per token of the last half hour, kept apart. Bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import Struct

from gateway.telemetry.totals import Totals, percentile

EVERY_S = 5.0
SAMPLES = 360


@dataclass(frozen=True, slots=True)
class Sample:
    """What happened in the seconds since the sample before; None where nothing of the kind did."""

    at: float
    seconds: float
    requests: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_p50: float | None
    ttft_p95: float | None
    tpot_p50: float | None
    tpot_p95: float | None


class Curves(Struct, frozen=True):
    """The samples as columns, the oldest first. ago_s: how long ago each ended; others per sample.

    Seconds, but for hit_rate, a share, and the rates of requests and tokens, per second.
    """

    ago_s: list[float]
    hit_rate: list[float | None]
    ttft_p50: list[float | None]
    ttft_p95: list[float | None]
    tpot_p50: list[float | None]
    tpot_p95: list[float | None]
    requests_per_s: list[float]
    failed_per_s: list[float]
    tokens_per_s: list[float]


@dataclass(frozen=True, slots=True)
class _Mark:
    """Telemetry's totals at one time."""

    at: float
    numbers: tuple[int, ...]
    ttft: tuple[int, ...]
    tpot: tuple[int, ...]

    @classmethod
    def of(cls, totals: Totals, now: float) -> _Mark:
        """How they stand."""
        numbers = (
            totals.ended,
            totals.failed,
            totals.prompt_tokens,
            totals.cached_tokens,
            totals.completion_tokens,
        )
        return cls(now, numbers, tuple(totals.ttft_s.counts), tuple(totals.tpot_s.counts))


class History:
    """Takes a sample every EVERY_S. look: told with each sample."""

    def __init__(
        self, totals: Totals, clock: Callable[[], float], look: Callable[[], None] | None = None
    ):
        self._totals = totals
        self._clock = clock
        self._look = look
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._mark = _Mark.of(totals, clock())

    def __len__(self) -> int:
        """How many samples are kept."""
        return len(self._samples)

    async def watch(self) -> None:
        """Take samples for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.sample()
            if self._look is not None:
                self._look()

    def sample(self) -> None:
        """What was counted since the last sample is one more."""
        before, self._mark = self._mark, _Mark.of(self._totals, self._clock())
        after = self._mark
        numbers = _since(before.numbers, after.numbers)
        ttft, tpot = _since(before.ttft, after.ttft), _since(before.tpot, after.tpot)
        of_first = [percentile(ttft, share) for share in (0.5, 0.95)]
        of_next = [percentile(tpot, share) for share in (0.5, 0.95)]
        seconds = after.at - before.at
        self._samples.append(Sample(after.at, seconds, *numbers, *of_first, *of_next))

    def curves(self) -> Curves:
        """All that is kept."""
        now, samples = self._clock(), list(self._samples)
        return Curves(
            ago_s=[round(now - one.at, 1) for one in samples],
            hit_rate=[
                one.cached_tokens / one.prompt_tokens if one.prompt_tokens else None
                for one in samples
            ],
            ttft_p50=[one.ttft_p50 for one in samples],
            ttft_p95=[one.ttft_p95 for one in samples],
            tpot_p50=[one.tpot_p50 for one in samples],
            tpot_p95=[one.tpot_p95 for one in samples],
            requests_per_s=[one.requests / one.seconds for one in samples],
            failed_per_s=[one.failed / one.seconds for one in samples],
            tokens_per_s=[one.completion_tokens / one.seconds for one in samples],
        )


def _since(before: Sequence[int], after: Sequence[int]) -> list[int]:
    return [new - old for old, new in zip(before, after, strict=True)]
