"""A model that knows nothing, under a constraint: it draws among all that is allowed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import torch

from tests.worker.chain import ChainRunner
from worker.assembly import CACHES
from worker.cache.pages import PagePool
from worker.engine import Engine, StepReport
from worker.errors import RequestFailed
from worker.grammar.compiler import Compiler
from worker.grammar.masks import Masks
from worker.intake import Intake
from worker.prepared import specs
from worker.request import FinishReason, Sampling, TokenLogprobs
from worker.sampler import sample
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import pack_tokens
from worker.step import PlanRow, Sampled
from worker.submission import Constraint, Language, StopRules, Submission
from worker.text.tokenizer import Tokenizer

WARM = Sampling(temperature=1.0)
NOISE = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32)


def schema(text: str) -> Constraint:
    return Constraint(Language.JSON_SCHEMA, text)


def regex(text: str) -> Constraint:
    return Constraint(Language.REGEX, text)


def lark(text: str) -> Constraint:
    return Constraint(Language.GRAMMAR, text)


def choices(*texts: str) -> Constraint:
    return Constraint(Language.CHOICES, choices=texts)


class WeakRunner(ChainRunner):
    """Logits of a whole vocabulary follow from the last digest. likes: ids that it would take."""

    def __init__(self, num_pages: int, page_size: int, width: int) -> None:
        super().__init__(num_pages, page_size)
        self.width = width
        self.likes: frozenset[int] = frozenset()

    def _drawn(self, row: PlanRow, digest: bytes) -> Sampled:
        assert row.sample is not None
        begin = int.from_bytes(digest, "little") % (len(NOISE) - self.width)
        logits = torch.from_numpy(NOISE[begin : begin + self.width].copy())[None]
        if self.likes:
            logits[0, list(self.likes)] += 50
        [(token, logprobs)] = sample(logits, [row.sample])
        return Sampled(row.sequence_id, token, logprobs)


@dataclass
class Told:
    """What became of one choice."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish: FinishReason | None = None
    closed: bool = False
    failure: RequestFailed | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    """How the worker is set up."""

    cache: str = "radix"
    page_size: int = 4
    num_pages: int = 512
    budget: int = 64
    running: int = 8
    appends: bool = True


class Weak:
    """Intake, engine and scheduler of a worker on the weak model, stepped by the test.

    grammars: another worker's, on the same tokenizer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        bench: Bench | None = None,
        grammars: Compiler | None = None,
        masks: Masks | None = None,
    ) -> None:
        bench = bench or Bench()
        torch.set_num_threads(1)  # a second one stalls at barriers where cores are shared
        self.tokenizer = tokenizer
        self.intake = Intake(tokenizer, None, bench.num_pages * bench.page_size, random.Random(0))
        self.intake.grammars = grammars or self.intake.grammars
        pool = PagePool(bench.num_pages, bench.page_size, keep_freed=True)
        self.cache = CACHES[bench.cache](pool)
        self.runner = WeakRunner(bench.num_pages, bench.page_size, tokenizer.vocab_size)
        limits = SchedulerLimits(bench.budget, bench.running, append_forced=bench.appends)
        self.scheduler = Scheduler(self.cache, limits, masks=masks)
        self.engine = Engine(self.scheduler, self.runner, self._take)
        self.told: dict[int, Told] = {}
        self.ends: Counter[int] = Counter()
        self.numbers = count(1)

    def submit(self, submission: Submission) -> list[int]:
        """Returns the ids of the choices' sequences."""
        prepared = self.intake.prepare(submission)
        made = specs(prepared, submission, list(range(submission.n)), self.numbers)
        self.told |= {spec.id: Told() for spec in made}
        self.engine.submit(made)
        return [spec.id for spec in made]

    def run(self, *submissions: Submission) -> list[Told]:
        """Returns what became of all choices, in order."""
        numbers = [number for one in submissions for number in self.submit(one)]
        self.finish()
        return [self.told[number] for number in numbers]

    def finish(self) -> None:
        while self.engine.step():
            pass
        self.settled()

    def settled(self) -> None:
        self.cache.check()
        assert self.cache.pool.num_used == 0
        assert self.scheduler.num_waiting == self.scheduler.num_running == 0
        assert not self.scheduler.guidance.has_news

    def text(self, told: Told) -> bytes:
        """What the choice's tokens spell, without the one that ended it."""
        hides = told.finish is FinishReason.STOP and not told.closed
        shown = told.tokens[:-1] if hides else told.tokens
        return b"".join(map(self.tokenizer.token_bytes, shown))

    def _take(self, report: StepReport) -> None:
        assert not report.failed, "a step failed; see the log"
        for progress in report.progress:
            told = self.told[progress.sequence_id]
            assert told.finish is None
            assert told.failure is None
            told.tokens += progress.tokens
            told.logprobs += progress.logprobs
            told.finish, told.closed = progress.finish, progress.closed
        for number, failure in report.refused.items():
            assert self.told[number].finish is None
            self.told[number].failure = failure


def asked(
    constraint: Constraint | None, prompt: list[int] | None = None, max_tokens: int = 400
) -> Submission:
    return Submission(
        1,
        pack_tokens(prompt or [5, 6, 7, 8, 9]),
        WARM,
        seed=1,
        rules=StopRules(max_tokens=max_tokens),
        constraint=constraint,
    )


def seeded(submission: Submission, seed: int) -> Submission:
    return replace(submission, seed=seed)
