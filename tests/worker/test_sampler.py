from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from worker.request import Sampling
from worker.sampler import sample, uniform
from worker.sequence import pack_tokens
from worker.step import SampleRow

VOCAB = 2000
LOGITS = torch.randn(VOCAB, generator=torch.Generator().manual_seed(0)) * 3


def draw(sampling: Sampling, logits: torch.Tensor = LOGITS, **more: object) -> int:
    row = SampleRow(sampling, position=7, **more)  # type: ignore[arg-type]
    return sample(logits[None].clone(), [row])[0][0]


def draws(sampling: Sampling, count: int, logits: torch.Tensor = LOGITS) -> list[int]:
    rows = [SampleRow(replace(sampling, seed=seed), position=3) for seed in range(count)]
    return [token for token, _ in sample(logits.repeat(count, 1), rows)]


def nucleus(top_p: float) -> set[int]:
    probabilities, ids = LOGITS.double().softmax(-1).sort(descending=True, stable=True)
    before = probabilities.cumsum(0) - probabilities
    return set(ids[before < top_p].tolist())


def test_greedy_is_the_best_token() -> None:
    assert draw(Sampling(temperature=0)) == int(LOGITS.argmax())


def test_a_tiny_temperature_is_greedy_and_does_not_overflow() -> None:
    assert draw(Sampling(temperature=1e-9)) == int(LOGITS.argmax())


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    seen = np.bincount(draws(Sampling(), 4000, logits), minlength=4) / 4000
    assert np.abs(seen - logits.softmax(-1).numpy()).max() < 0.03


def test_temperature_flattens() -> None:
    logits = torch.tensor([0.0, 3.0])
    hot = np.mean(draws(Sampling(temperature=10.0), 2000, logits))
    expected = float(torch.sigmoid(torch.tensor(0.3)))
    assert abs(hot - expected) < 0.04


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999999])
def test_top_p_draws_from_the_nucleus_only(top_p: float) -> None:
    allowed = nucleus(top_p)
    seen = set(draws(Sampling(top_p=top_p), 500))
    assert seen <= allowed
    assert len(allowed) > 500 or len(seen) > 0.3 * min(len(allowed), 50)


def test_a_nucleus_larger_than_what_is_sorted_at_first_is_found_whole() -> None:
    flat = torch.zeros(VOCAB)
    assert len(set(draws(Sampling(top_p=0.9), 3000, flat))) > 0.6 * 0.9 * VOCAB
    assert max(draws(Sampling(top_p=0.9), 3000, flat)) < 0.9 * VOCAB + 1


def test_top_k_and_min_p_keep_what_they_say() -> None:
    order = LOGITS.argsort(descending=True)
    assert set(draws(Sampling(top_k=3, temperature=5.0), 300)) == set(order[:3].tolist())
    probabilities = LOGITS.double().softmax(-1)
    allowed = set((probabilities >= 0.2 * probabilities.max()).nonzero().flatten().tolist())
    assert set(draws(Sampling(min_p=0.2), 2000)) == allowed


def test_limits_hold_together() -> None:
    probabilities = LOGITS.double().softmax(-1)
    allowed = (probabilities >= 0.2 * probabilities.max()).nonzero().flatten().tolist()
    assert set(draws(Sampling(top_p=0.999, min_p=0.2), 2000)) == set(allowed)
    assert set(draws(Sampling(top_k=len(allowed) + 9, min_p=0.2), 2000)) == set(allowed)
    # Of the three best, the first two have 0.7 of the mass: of all tokens they have less.
    few = torch.tensor([0.3, 0.25, 0.2, *[0.01] * 25]).log()
    assert set(draws(Sampling(top_k=3, top_p=0.7), 500, few)) == {0, 1}


@pytest.mark.parametrize("sampling", [Sampling(top_k=10**6), Sampling(top_p=1.0, min_p=0.0)])
def test_limits_that_limit_nothing_change_nothing(sampling: Sampling) -> None:
    assert draws(sampling, 50) == draws(Sampling(), 50)


def test_noise_depends_on_seed_choice_and_position_only() -> None:
    numbers = [uniform(*key) for key in itertools.product(range(4), range(4), range(4))]
    assert len(set(numbers)) == 64
    assert all(0 <= number < 1 for number in numbers)
    alone = draw(Sampling(seed=5))
    mates = torch.stack([LOGITS, -LOGITS, LOGITS * 2])
    row = SampleRow(Sampling(seed=5), position=7)
    other = SampleRow(Sampling(temperature=0), position=1)
    for place in range(3):
        rows = [row if index == place else other for index in range(3)]
        assert sample(mates.roll(place, 0), rows)[place][0] == alone


def test_choices_of_one_seed_differ() -> None:
    rows = [SampleRow(Sampling(seed=1, temperature=3.0), 5, choice=choice) for choice in range(20)]
    assert len({token for token, _ in sample(LOGITS.repeat(20, 1), rows)}) > 5


def test_bias_and_bans_move_the_choice() -> None:
    best, second = LOGITS.argsort(descending=True)[:2].tolist()
    assert draw(Sampling(temperature=0, logit_bias={second: 100.0})) == second
    assert draw(Sampling(temperature=0, logit_bias={best: -100.0})) == second
    assert draw(Sampling(temperature=0), banned=frozenset({best})) == second


def test_penalties_look_at_what_they_say() -> None:
    logits = torch.tensor([2.0, 1.9, 1.0, 0.5])
    in_prompt = {"history": pack_tokens([0]), "prompt_len": 1}
    in_output = {"history": pack_tokens([3, 0]), "prompt_len": 1}
    repetition = Sampling(temperature=0, repetition_penalty=1.5)
    presence = Sampling(temperature=0, presence_penalty=0.2)
    assert draw(repetition, logits, **in_prompt) == 1
    assert draw(presence, logits, **in_prompt) == 0
    assert draw(presence, logits, **in_output) == 1
    frequency = Sampling(temperature=0, frequency_penalty=0.04)
    once = {"history": pack_tokens([3, 0]), "prompt_len": 1}
    thrice = {"history": pack_tokens([3, 0, 0, 0]), "prompt_len": 1}
    assert draw(frequency, logits, **once) == 0
    assert draw(frequency, logits, **thrice) == 1
    negative = torch.tensor([-0.1, -0.12])
    assert draw(repetition, negative, **in_prompt) == 1


def test_logprobs_are_the_models_own_and_sorted() -> None:
    row = SampleRow(Sampling(temperature=0.5, seed=3), 7, top_logprobs=4)
    token, logprobs = sample(LOGITS[None].clone(), [row])[0]
    assert logprobs is not None
    reference = LOGITS.double().log_softmax(-1)
    assert logprobs.sampled[0] == token
    assert logprobs.sampled[1] == pytest.approx(float(reference[token]))
    best = reference.argsort(descending=True)[:4].tolist()
    assert [one for one, _ in logprobs.top] == best
    assert sample(LOGITS[None].clone(), [replace(row, top_logprobs=0)])[0][1].top == ()  # type: ignore[union-attr]
    assert sample(LOGITS[None].clone(), [replace(row, top_logprobs=None)])[0][1] is None


def test_logits_are_left_as_they_were() -> None:
    logits = LOGITS[None].clone()
    sample(logits, [SampleRow(Sampling(logit_bias={1: 50.0}, temperature=0), 1)])
    assert torch.equal(logits[0], LOGITS)
