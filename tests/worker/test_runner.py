"""What a plan becomes: which slots are written, what is attended to, who gets which token."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest
import torch

from kernels.interface import AttentionBackend, AttentionBatch, AttentionParams, KVShape
from worker.model.interface import ModelShape
from worker.request import Sampling
from worker.runner import Runner
from worker.sequence import pack_tokens
from worker.step import PlanRow, SampleRow, StepPlan

SIZE, LAYERS, VOCAB = 4, 3, 50
GREEDY = Sampling(temperature=0)


@dataclass
class Pages:
    """A backend that notes what is done to it, in order."""

    name: str = "noted"
    bitwise: bool = True
    shape: KVShape = field(default_factory=lambda: KVShape(LAYERS, 16, SIZE, 1, 1, torch.float32))
    done: list[tuple[object, ...]] = field(default_factory=list)

    def write(
        self, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch
    ) -> None:
        self.done.append(("write", layer))

    def attend(
        self, layer: int, query: torch.Tensor, batch: AttentionBatch, params: AttentionParams
    ) -> torch.Tensor:
        return query

    def copy_pages(self, source: list[int], target: list[int]) -> None:
        self.done.append(("copy", source, target))

    def fill_pages(self, pages: list[int], value: float) -> None:
        assert math.isnan(value), "pages are poisoned with NaN"
        self.done.append(("poison", pages))


class Successor:
    """A model whose best token behind t is t + 1; it keeps what it was asked."""

    name = "successor"
    bitwise = True
    shape = ModelShape("successor", VOCAB, LAYERS, 1, 1, 1, 64)

    def __init__(self) -> None:
        self.pages = Pages()
        self.backend: AttentionBackend = self.pages

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        batch: AttentionBatch,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        self.tokens, self.positions, self.batch = token_ids, positions, batch
        for layer in range(LAYERS):
            self.backend.write(layer, token_ids, token_ids, batch)
        return torch.nn.functional.one_hot(token_ids[rows] + 1, VOCAB).float()


@dataclass
class Lab:
    model: Successor = field(default_factory=Successor)
    checks: int = 0

    def run(self, plan: StepPlan) -> dict[int, int]:
        """Returns each sequence's new token."""
        runner = Runner(self.model, torch.device("cpu"))
        return {one.sequence_id: one.token for one in runner.run(plan, self._check).sampled}

    def _check(self) -> None:
        self.checks += 1


def row(number: int, tokens: list[int], start: int, table: list[int], *, asks: bool) -> PlanRow:
    sample = SampleRow(GREEDY, start + len(tokens)) if asks else None
    return PlanRow(number, pack_tokens(tokens), start, table, sample)


# A chunk in the middle of a prompt, a decode, a prefill behind a copied tail.
PLAN = StepPlan(
    [
        row(7, [20, 21, 22], 2, [5, 9], asks=False),
        row(8, [30], 8, [1, 2, 3], asks=True),
        row(9, [40, 41, 42, 43, 44], 0, [6, 4], asks=True),
    ],
    copies=[(3, 5), (8, 6)],
    poison=[5, 9],
)


def test_every_token_has_its_position_its_slot_and_its_context() -> None:
    lab = Lab()
    lab.run(PLAN)
    batch = lab.model.batch
    assert lab.model.tokens.tolist() == [20, 21, 22, 30, 40, 41, 42, 43, 44]
    assert lab.model.positions.tolist() == [2, 3, 4, 8, 0, 1, 2, 3, 4]
    slots = [5 * 4 + 2, 5 * 4 + 3, 9 * 4, 3 * 4, *range(6 * 4, 7 * 4), 4 * 4]
    assert batch.slot_mapping.tolist() == slots
    assert batch.query_start.tolist() == [0, 3, 4, 9]
    assert batch.context_len.tolist() == [5, 9, 5]
    assert batch.block_table.tolist() == [[5, 9, 0], [1, 2, 3], [6, 4, 0]]
    assert (batch.page_size, batch.max_query_len, batch.max_context_len) == (SIZE, 5, 9)


def test_only_those_who_ask_get_a_token_and_each_its_own() -> None:
    assert Lab().run(PLAN) == {8: 31, 9: 45}


def test_pages_are_poisoned_then_copied_and_only_then_written() -> None:
    lab = Lab()
    lab.run(PLAN)
    writes = [("write", layer) for layer in range(LAYERS)]
    assert lab.model.pages.done == [("poison", [5, 9]), ("copy", [3, 8], [5, 6]), *writes]


def test_an_interruption_between_two_layers_leaves_the_rest_unwritten() -> None:
    lab = Lab()
    runner = Runner(lab.model, torch.device("cpu"))

    def interrupt() -> None:
        lab.checks += 1
        if lab.checks == LAYERS:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        runner.run(StepPlan(PLAN.rows), interrupt)
    assert lab.model.pages.done == [("write", 0), ("write", 1)]
    lab.checks = 0
    assert runner.run(StepPlan(PLAN.rows), lab._check).sampled
    assert lab.checks == LAYERS


class Asked:
    """A model that keeps the batch that it was asked."""

    name = "asked"
    bitwise = True
    shape = Successor.shape

    def __init__(self) -> None:
        self.backend: AttentionBackend = Pages()

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        batch: AttentionBatch,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        self.batch = batch
        return torch.zeros(len(rows), VOCAB)


def test_a_batch_on_a_device_can_be_read_on_the_host() -> None:
    found = []
    plan = StepPlan([replace(one, budget=96) for one in PLAN.rows])
    for device in ("cpu", "meta"):
        model = Asked()
        Runner(model, torch.device(device)).compute(plan, lambda: None)
        found.append(model.batch)
    on_cpu, on_device = found
    assert on_cpu.on_host is on_cpu
    for name in ("query_start", "context_len", "block_table", "slot_mapping", "budget"):
        there, here = getattr(on_device, name), getattr(on_device.on_host, name)
        assert there.device.type == "meta"
        assert torch.equal(here, getattr(on_cpu, name))
