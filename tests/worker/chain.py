"""A model without tensors: a slot holds a digest of the whole prefix behind it, and the next token
follows from the last digest. Whoever reads a wrong page gets another answer, and is told at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from worker.request import TokenScore
from worker.sampler import sample
from worker.sequence import pack_tokens, unpack_tokens
from worker.step import PlanRow, Sampled, StepPlan, StepResult

VOCAB = 1000
POISON = (b"poison", -1)


def link(previous: bytes, token: int) -> bytes:
    return hashlib.blake2b(previous + token.to_bytes(4, "little"), digest_size=8).digest()


def next_token(digest: bytes) -> int:
    return int.from_bytes(digest, "little") % VOCAB


def expected(prompt: list[int], count: int) -> list[int]:
    """What the chain model generates for a prompt, computed without pages."""
    digest = b""
    for token in prompt:
        digest = link(digest, token)
    output = []
    for _ in range(count):
        output.append(next_token(digest))
        digest = link(digest, output[-1])
    return output


def expected_scores(prompt: list[int]) -> tuple[TokenScore, ...]:
    """What the chain model scores a prompt's second token and those behind it, without pages."""
    digest, found = b"", []
    for token, target in pairwise(prompt):
        digest = link(digest, token)
        found.append(score(digest, target))
    return tuple(found)


def score(digest: bytes, target: int) -> TokenScore:
    """What a token scores behind a prefix."""
    number = next_token(link(digest, target))
    best = None if number % 2 else (target + 1, -number / VOCAB)
    return TokenScore(-1 - number / VOCAB, 1 + number, best)


class ChainRunner:
    """Runs plans on the chain model. Set `fail_next` to raise in the middle of the next step."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.memory: list[tuple[bytes, int]] = [POISON] * (num_pages * page_size)
        self.fail_next = False
        self.on_layer: Callable[[], None] = lambda: None
        self.steps: list[StepPlan] = []

    @property
    def computed_tokens(self) -> int:
        return sum(plan.num_tokens for plan in self.steps)

    def run(self, plan: StepPlan, checkpoint: Callable[[], None]) -> StepResult:
        self.steps.append(plan)
        size = self.page_size
        for page in plan.poison:
            self.memory[page * size : (page + 1) * size] = [POISON] * size
        for source, target in plan.copies:
            copied = self.memory[source * size : (source + 1) * size]
            self.memory[target * size : (target + 1) * size] = copied
        if self.fail_next:
            self.fail_next = False
            raise RuntimeError("planted failure")
        self.on_layer()
        checkpoint()
        for row in plan.rows:
            self._write(row)
        scoring = [row for row in plan.rows if row.targets]
        sampled = [self._sample(row) for row in plan.rows if row.sample is not None]
        return StepResult(sampled, {row.sequence_id: self._scores(row) for row in scoring})

    def _slot(self, row: PlanRow, position: int) -> int:
        return row.table[position // self.page_size] * self.page_size + position % self.page_size

    def _write(self, row: PlanRow) -> None:
        digest = self.memory[self._slot(row, row.start - 1)][0] if row.start else b""
        for position, token in enumerate(unpack_tokens(row.tokens), start=row.start):
            digest = link(digest, token)
            self.memory[self._slot(row, position)] = (digest, token)

    def _sample(self, row: PlanRow) -> Sampled:
        length = row.start + len(row.tokens) // 4
        digest = b""
        for position in range(length):
            found, token = self.memory[self._slot(row, position)]
            digest = link(digest, token) if token >= 0 else b""
            assert found == digest, f"position {position} of {length} is not this sequence's"
        return self._drawn(row, digest)

    def _scores(self, row: PlanRow) -> list[TokenScore]:
        """What a prompt's tokens score follows from the digest in front of each, and its id."""
        targets = enumerate(unpack_tokens(row.targets), start=row.start)
        return [score(self.memory[self._slot(row, at)][0], target) for at, target in targets]

    def _drawn(self, row: PlanRow, digest: bytes) -> Sampled:
        return Sampled(row.sequence_id, next_token(digest))


class DrawingRunner(ChainRunner):
    """Draws from logits that follow from the last digest, as the worker's sampler draws.

    For the penalties, a prompt's ids beyond VOCAB count as others below it.
    """

    def _drawn(self, row: PlanRow, digest: bytes) -> Sampled:
        assert row.sample is not None
        noise = np.random.default_rng(int.from_bytes(digest, "little"))
        logits = torch.from_numpy(2 * noise.standard_normal((1, VOCAB), dtype=np.float32))
        history = pack_tokens([token % VOCAB for token in unpack_tokens(row.sample.history)])
        [(token, logprobs)] = sample(logits, [replace(row.sample, history=history)])
        return Sampled(row.sequence_id, token, logprobs)
