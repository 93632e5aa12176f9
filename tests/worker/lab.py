"""A worker's engine on a real model, driven step by step in the test's own thread."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from kernels import Place, make_backend
from worker.assembly import CACHES
from worker.cache.pages import PagePool
from worker.cache.scope import CacheScope
from worker.dflash import OFF, Dflash
from worker.engine import Engine, StepReport, StepRunner
from worker.model.formats import PLAIN, Formats
from worker.model.interface import Model
from worker.model.loading import LoadOptions, load
from worker.request import Sampling, Stopping, TokenLogprobs
from worker.runner import Runner
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import SequenceSpec, pack_tokens

GREEDY = Sampling(temperature=0.0)
NUM_TOKENS = 6144


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of the matrix. Every freed page is poisoned with NaN."""

    cache: str = "radix"
    page_size: int = 16
    budget: int = 512
    running: int = 64
    num_tokens: int = NUM_TOKENS
    threads: int = 2
    member: str = "lowered"
    order: str = "cache_aware"
    dflash: Dflash = OFF


def load_member(folder: Path, member: str, formats: Formats = PLAIN) -> Model:
    """Returns a member of the model with a page pool that every lab replaces by its own."""
    return load(folder, LoadOptions(num_pages=8, member=member, threads=2, formats=formats))


@dataclass
class Lab:
    """Runs prompts to their end; outputs by id, in order of submission."""

    model: Model
    setting: Setting
    output: dict[int, list[int]] = field(default_factory=dict)
    logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    first_cached: dict[int, int] = field(default_factory=dict)
    num_steps: int = 0

    def __post_init__(self) -> None:
        setting = self.setting
        torch.set_num_threads(1)  # a second one stalls at barriers where cores are shared
        self.runner = self.make_runner()
        pool = PagePool(setting.num_tokens // setting.page_size, setting.page_size, keep_freed=True)
        self.cache = CACHES[setting.cache](pool)
        limits = SchedulerLimits(setting.budget, setting.running, dflash=setting.dflash)
        self.scheduler = Scheduler(self.cache, limits, setting.order)
        self.engine = Engine(self.scheduler, self.runner, self._take)

    def make_runner(self) -> StepRunner:
        """Returns what computes the engine's plans, with an empty page pool."""
        setting, old = self.setting, self.model.backend.shape
        shape = replace(
            old, page_size=setting.page_size, num_pages=setting.num_tokens // setting.page_size
        )
        self.model.backend = make_backend("cpu", shape, Place("cpu", setting.threads))
        return Runner(self.model, torch.device("cpu"))

    def run(
        self,
        prompts: list[list[int]],
        max_tokens: int,
        sampling: Sampling = GREEDY,
        top_logprobs: int | None = None,
    ) -> list[list[int]]:
        """Returns what all prompts, submitted together, generate."""
        start = len(self.output) + 1
        numbers = range(start, start + len(prompts))
        specs = [
            SequenceSpec(
                number,
                CacheScope(),
                pack_tokens(prompt),
                sampling,
                Stopping(max_tokens),
                top_logprobs=top_logprobs,
            )
            for number, prompt in zip(numbers, prompts, strict=True)
        ]
        for number in numbers:
            self.output[number], self.logprobs[number] = [], []
        self.engine.submit(specs)
        while self.engine.step():
            self.num_steps += 1
        self.cache.check()
        assert self.cache.pool.num_used == 0
        return [self.output[number] for number in numbers]

    def _take(self, report: StepReport) -> None:
        assert not report.failed, "a step failed; see the log"
        self.first_cached |= report.first_cached
        for progress in report.progress:
            self.output[progress.sequence_id] += progress.tokens
            self.logprobs[progress.sequence_id] += progress.logprobs
