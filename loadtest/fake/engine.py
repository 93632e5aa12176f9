"""An engine by the clock: prompts are computed one after the other at a rate, answers by ticks.

What an answer says depends on seed, choice and position alone, so a request that is continued on
another worker reads as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from loadtest.fake.cache import FakeCache, Mark


@dataclass(frozen=True, slots=True)
class Pace:
    """prefill_tokens_s: prompt tokens computed in a second; tick_s: between two decode steps.

    Zero ticks answer at once. max_running: requests that decode together.
    """

    prefill_tokens_s: float = 8000.0
    tick_s: float = 0.02
    max_running: int = 256


@dataclass(slots=True, eq=False)
class Job:
    """One request. given: tokens of each choice that another worker has told already.

    is_told: whether the gateway knows what came from the cache.
    """

    request_id: int
    link: object
    seed: int
    num_choices: int
    num_tokens: int
    prompt_tokens: int
    chain: list[Mark]
    expected_tokens: int
    given: dict[int, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    cached_tokens: int = 0
    left: float = -1.0
    told: int = 0
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A choice's next token; last: the choice ends with it."""

    job: Job
    choice: int
    token_id: int
    last: bool


Report = Callable[[list[Token], list[Job]], None]


def token_id(seed: int, choice: int, position: int) -> int:
    """What a choice says at a position."""
    return zlib.crc32(struct.pack("<QII", seed & (2**64 - 1), choice, position)) % 30_000


class FakeEngine:
    """Computes jobs for ever. report: called with the tokens and the ended jobs of each step."""

    def __init__(self, pace: Pace, cache: FakeCache, report: Report):
        self._pace = pace
        self._report = report
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._work = asyncio.Event()
        self.cache = cache
        self.steps_total = 0
        self.prompt_tokens_total = 0
        self.cached_tokens_total = 0

    @property
    def num_running(self) -> int:
        """Jobs that decode."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Jobs whose prompt is not computed."""
        return len(self._waiting)

    def submit(self, job: Job) -> None:
        """The job waits for its turn."""
        self._waiting.append(job)
        self._work.set()

    def cancel(self, job: Job) -> None:
        """The job ends without a word."""
        if job in self._waiting:
            self._waiting.remove(job)
        elif job in self._running:
            self._running.remove(job)

    async def run(self) -> None:
        """Step for ever."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if not self._waiting and not self._running:
                self._work.clear()
                await self._work.wait()
                due = loop.time()
            if self._pace.tick_s:
                due = max(due + self._pace.tick_s, loop.time() - 5 * self._pace.tick_s)
                await asyncio.sleep(max(0.0, due - loop.time()))
            else:
                await asyncio.sleep(0)
            self._step()

    def _step(self) -> None:
        self.steps_total += 1
        self._prefill(self._pace.prefill_tokens_s * self._pace.tick_s)
        tokens: list[Token] = []
        ended: list[Job] = []
        for job in list(self._running):
            rounds = 1 if self._pace.tick_s else job.num_tokens
            for _ in range(rounds):
                tokens += self._next(job)
            if job.told >= job.num_tokens:
                ended.append(job)
                self._running.remove(job)
        if tokens or ended:
            self._report(tokens, ended)

    def _prefill(self, budget: float) -> None:
        """Compute prompts in order, as far as a step's budget goes."""
        while self._waiting and len(self._running) < self._pace.max_running:
            job = self._waiting[0]
            if job.left < 0:
                job.cached_tokens = min(self.cache.admit(job.chain), job.prompt_tokens - 1)
                job.left = float(job.prompt_tokens - job.cached_tokens)
            if self._pace.tick_s and job.left > budget:
                job.left -= budget
                return
            budget -= job.left
            job.told = min((job.given.get(one, 0) for one in range(job.num_choices)), default=0)
            self.prompt_tokens_total += job.prompt_tokens
            self.cached_tokens_total += job.cached_tokens
            self._waiting.popleft()
            self._running.append(job)

    def _next(self, job: Job) -> list[Token]:
        """One token of each choice that is not ahead."""
        position = job.told
        job.told += 1
        last = job.told >= job.num_tokens
        return [
            Token(job, choice, token_id(job.seed, choice, position), last)
            for choice in range(job.num_choices)
            if choice not in job.finished and job.given.get(choice, 0) <= position
        ]
