"""Logprobs of prompt tokens: the same bits cold and warm, computed only where not known."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.worker.lab import GREEDY, Lab, Setting, load_member
from tests.worker.test_exactness import raw_logits
from worker.cache.scope import CacheScope
from worker.request import Stopping, TokenScore
from worker.sequence import SequenceSpec, pack_tokens


class ScoringLab(Lab):
    """Also asks for the scores of prompts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scores: dict[int, tuple[TokenScore, ...]] = {}

    def score(self, *prompts: list[int], score: bool = True) -> list[tuple[TokenScore, ...]]:
        """The scores of prompts that are submitted together."""
        start = len(self.output) + 1
        numbers = range(start, start + len(prompts))
        for number, prompt in zip(numbers, prompts, strict=True):
            self.output[number], self.logprobs[number] = [], []
            packed = pack_tokens(prompt)
            stopping = Stopping(2)
            spec = SequenceSpec(number, CacheScope(), packed, GREEDY, stopping, score_prompt=score)
            self.engine.submit([spec])
        while self.engine.step():
            self.num_steps += 1
        self.cache.check()
        return [self.scores.get(number, ()) for number in numbers]

    def _take(self, report) -> None:  # type: ignore[no-untyped-def]
        super()._take(report)
        for progress in report.progress:
            if progress.prompt_scores is not None:
                assert progress.sequence_id not in self.scores
                self.scores[progress.sequence_id] = progress.prompt_scores

    @property
    def computed(self) -> int:
        return self.scheduler.counters.computed_tokens


@pytest.fixture(scope="module")
def lab(smollm2_folder: Path) -> Callable[[Setting], ScoringLab]:
    model = load_member(smollm2_folder, "lowered")
    return lambda setting: ScoringLab(model, setting)


RNG = random.Random(3)
PROMPT = [RNG.randrange(1000, 40000) for _ in range(83)]


def reference(worker: Lab, prompt: list[int]) -> list[float]:
    """Logprobs of each next token, from one forward over the whole prompt."""
    logits = raw_logits(worker, prompt).double()
    following = zip(logits, prompt[1:], strict=False)
    return [float(row[token] - torch.logsumexp(row, dim=-1)) for row, token in following]


def test_scores_are_the_models_own(lab: Callable[[Setting], ScoringLab]) -> None:
    worker = lab(Setting())
    [scores] = worker.score(PROMPT[:20])
    assert [one.logprob for one in scores] == reference(lab(Setting()), PROMPT[:20])
    assert all(one.rank >= 1 for one in scores)


@pytest.mark.parametrize("cache", ["radix", "block", "off"])
@pytest.mark.parametrize("budget", [512, 32])
def test_warm_scores_have_the_same_bits_and_compute_little(
    lab: Callable[[Setting], ScoringLab], cache: str, budget: int
) -> None:
    [cold] = lab(Setting(budget=budget)).score(PROMPT)
    assert len(cold) == len(PROMPT) - 1
    worker = lab(Setting(cache=cache, budget=budget))
    assert worker.score(PROMPT) == [cold]
    before = worker.computed
    assert worker.score(PROMPT) == [cold]
    again = worker.computed - before - 1  # one decoded token
    assert again == {"radix": 1, "block": len(PROMPT) % 16, "off": len(PROMPT)}[cache]


@pytest.mark.parametrize("cache", ["radix", "block"])
@pytest.mark.parametrize("branch", [1, 15, 16, 17, 31, 32, 33, 47, 48, 80])
def test_a_branch_is_computed_from_where_its_next_token_differs(
    lab: Callable[[Setting], ScoringLab], cache: str, branch: int
) -> None:
    other = [*PROMPT[:branch], *(one + 7 for one in PROMPT[branch:])]
    [cold] = lab(Setting()).score(other)
    worker = lab(Setting(cache=cache))
    worker.score(PROMPT)
    before = worker.computed
    assert worker.score(other) == [cold]
    matched = branch if cache == "radix" else branch // 16 * 16
    reused = min(branch - 1, matched)
    assert worker.computed - before - 1 == len(other) - reused
    assert worker.score(PROMPT) == lab(Setting()).score(PROMPT)


def test_pages_that_were_computed_without_scores_are_computed_again_once(
    lab: Callable[[Setting], ScoringLab],
) -> None:
    [cold] = lab(Setting()).score(PROMPT)
    worker = lab(Setting())
    worker.score(PROMPT, score=False)
    before = worker.computed
    assert worker.score(PROMPT) == [cold]
    assert worker.computed - before - 1 == len(PROMPT)
    assert worker.score(PROMPT) == [cold]
    # The last, partial page is the one that stood there first.
    assert worker.computed - before - 2 == len(PROMPT) + len(PROMPT) % 16


def test_scores_of_many_at_once_under_pressure_are_right(
    lab: Callable[[Setting], ScoringLab],
) -> None:
    prompts = [[*PROMPT[: 20 + number], number] for number in range(12)]
    cold = [lab(Setting()).score(prompt)[0] for prompt in prompts]
    worker = lab(Setting(num_tokens=16 * 10, running=8, budget=24))
    assert worker.score(*prompts, *prompts) == [*cold, *cold]
    assert worker.scheduler.pool.evicted_total > 0
