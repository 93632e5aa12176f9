"""Scores from a place on: the same bits as all of them, and nothing in front is computed again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker.lab import GREEDY, Setting, load_member
from tests.worker.test_prompt_scores import PROMPT, ScoringLab
from worker.cache.scope import CacheScope
from worker.request import Stopping, TokenScore
from worker.sequence import SequenceSpec, pack_tokens


class FromLab(ScoringLab):
    """Asks for scores from a place on."""

    def score_from(self, first: int, *prompts: list[int]) -> list[tuple[TokenScore, ...]]:
        start = len(self.output) + 1
        numbers = range(start, start + len(prompts))
        for number, prompt in zip(numbers, prompts, strict=True):
            self.output[number], self.logprobs[number] = [], []
            spec = SequenceSpec(
                number,
                CacheScope(),
                pack_tokens(prompt),
                GREEDY,
                Stopping(1),
                score_prompt=True,
                scored_from=first,
            )
            self.engine.submit([spec])
        while self.engine.step():
            self.num_steps += 1
        self.cache.check()
        return [self.scores[number] for number in numbers]


@pytest.fixture(scope="module")
def lab(smollm2_folder: Path) -> Callable[[Setting], FromLab]:
    model = load_member(smollm2_folder, "lowered")
    return lambda setting: FromLab(model, setting)


@pytest.mark.parametrize(("cache", "budget"), [("radix", 16), ("block", 512), ("off", 512)])
@pytest.mark.parametrize("first", [1, 16, 17, 82])
def test_scores_from_a_place_on_have_the_bits_of_all(
    lab: Callable[[Setting], FromLab], cache: str, budget: int, first: int
) -> None:
    setting = Setting(cache=cache, budget=budget)
    [whole] = lab(setting).score(PROMPT)
    worker = lab(setting)
    cold, warm = worker.score_from(first, PROMPT), worker.score_from(first, PROMPT)
    assert cold == warm == [whole[first - 1 :]]


def test_a_prefix_without_scores_is_not_computed_again(lab: Callable[[Setting], FromLab]) -> None:
    worker = lab(Setting())
    worker.score(PROMPT[:-1], score=False)
    before = worker.computed
    choices = [[*PROMPT[:-3], one, one + 1] for one in (5, 6, 7)]
    scores = worker.score_from(len(PROMPT) - 3, *choices)
    assert [len(one) for one in scores] == [2, 2, 2]
    # The last token of what is shared, by the first choice or each, and each one's own.
    assert worker.computed - before <= 3 * 3
    for choice, found in zip(choices, scores, strict=True):
        [alone] = lab(Setting()).score(choice)
        assert found == alone[-2:]


def test_scores_come_where_not_all_fit_at_once(lab: Callable[[Setting], FromLab]) -> None:
    many = [[*PROMPT[: 40 + one], 1000 + one] for one in range(8)]
    small = lab(Setting(budget=32, num_tokens=160))
    found = small.score_from(41, *many[1:])
    for prompt, scores in zip(many[1:], found, strict=True):
        [alone] = lab(Setting()).score(prompt)
        assert scores == alone[40:]
