"""Under a mask only open ids come out, and what was drawn without one is drawn as before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from worker.parallel.frames import bare, pack
from worker.request import Sampling
from worker.sampler import sample
from worker.sequence import pack_tokens
from worker.step import PlanRow, SampleRow, StepPlan

VOCAB = 2001
LOGITS = torch.randn(VOCAB, generator=torch.Generator().manual_seed(0)) * 3
GREEDY = Sampling(temperature=0)
WAYS = {
    "greedy": GREEDY,
    "greedy with bias": replace(GREEDY, logit_bias={5: 1.0}),
    "drawn": Sampling(),
    "hot": Sampling(temperature=50.0),
    "top k": Sampling(top_k=5),
    "top k of more": Sampling(top_k=1500),
    "nucleus": Sampling(top_p=0.3),
    "min p": Sampling(min_p=0.2),
    "penalised": Sampling(presence_penalty=2, frequency_penalty=2, repetition_penalty=2),
    "pushed out": Sampling(logit_bias={1: 100.0, 2: 100.0, 2000: -100.0}),
}


def packed(ids: list[int]) -> bytes:
    bits = np.zeros(VOCAB, dtype=np.uint8)
    bits[ids] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def drawn(sampling: Sampling, mask: bytes, count: int = 50) -> list[int]:
    history = pack_tokens([3, 3, 2000])
    rows = [
        SampleRow(replace(sampling, seed=seed), 3, history=history, prompt_len=1, mask=mask)
        for seed in range(count)
    ]
    return [token for token, _ in sample(LOGITS.repeat(count, 1), rows)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ids", [[2000], [3, 2000], [0, 7, 8, 15, 1023], [*range(1, 2001, 2)]])
def test_only_open_ids_come_out(way: str, ids: list[int]) -> None:
    assert set(drawn(WAYS[way], packed(ids))) <= set(ids)


@pytest.mark.parametrize("way", WAYS)
def test_a_mask_that_leaves_everything_changes_nothing(way: str) -> None:
    assert drawn(WAYS[way], packed(list(range(VOCAB)))) == drawn(WAYS[way], b"")


def test_the_truncation_looks_at_what_is_open_only() -> None:
    """top_k 2 keeps the two best of those that are open, not of all."""
    ids = LOGITS.argsort()[:10].tolist()
    best = sorted(ids, key=lambda one: float(LOGITS[one]))[-2:]
    assert set(drawn(Sampling(top_k=2, temperature=9.0), packed(ids), 200)) == set(best)


def test_greedy_rows_with_and_without_masks_share_a_batch() -> None:
    rows = [
        SampleRow(GREEDY, 3),
        SampleRow(GREEDY, 3, mask=packed([9, 10])),
        SampleRow(Sampling(seed=1), 3, mask=packed([11])),
        SampleRow(GREEDY, 3, mask=packed([12])),
    ]
    tokens = [token for token, _ in sample(LOGITS.repeat(4, 1), rows)]
    better = 9 if LOGITS[9] > LOGITS[10] else 10
    assert tokens == [int(LOGITS.argmax()), better, 11, 12]


def test_ids_beyond_a_mask_are_closed() -> None:
    wide = torch.cat([LOGITS, torch.full((100,), 99.0)])
    for sampling in (GREEDY, Sampling()):
        row = SampleRow(sampling, 3, mask=packed([4, 5]))
        assert sample(wide[None], [row])[0][0] in (4, 5)


def test_logprobs_are_those_before_the_mask() -> None:
    row = SampleRow(GREEDY, 3, top_logprobs=2)
    [(_, free)] = sample(LOGITS[None], [row])
    [(token, masked)] = sample(LOGITS[None], [replace(row, mask=packed([9]))])
    assert free is not None
    assert masked is not None
    assert masked.top == free.top
    assert masked.sampled == (9, float(LOGITS.double().log_softmax(-1)[9]))
    assert token == 9


def test_masks_go_to_the_sampler_and_not_to_other_ranks() -> None:
    mask = b"\xa5" * 4096
    plan = StepPlan([PlanRow(1, bytes(4), 0, [0], SampleRow(GREEDY, 1, mask=mask))])
    assert mask in pack(plan)
    assert mask[:64] not in pack(bare(plan))
