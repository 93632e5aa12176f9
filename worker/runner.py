"""Turns a plan into tensors, runs the model once, samples. The only room that sees both sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from kernels.interface import AttentionBackend, AttentionBatch, KVShape
from worker.model.heads import VOCABULARY, Head, Vocabulary
from worker.model.interface import Model
from worker.request import TokenScore
from worker.sampler import sample, score
from worker.step import PlanRow, Sampled, StepPlan, StepResult


class Interruptible:
    """An attention backend that calls `checkpoint` once per layer, before its K/V is written."""

    def __init__(self, backend: AttentionBackend) -> None:
        self._backend = backend
        self.name = backend.name
        self.bitwise = backend.bitwise
        self.shape: KVShape = backend.shape
        self.copy_pages = backend.copy_pages
        self.fill_pages = backend.fill_pages
        self.attend = backend.attend
        self.checkpoint: Callable[[], None] = _nothing

    def write(
        self, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch
    ) -> None:
        """Stores key and value, unless checkpoint raises."""
        self.checkpoint()
        self._backend.write(layer, key, value, batch)


def _wanted(rows: list[PlanRow]) -> list[int]:
    """The rows that ask for a token."""
    return [index for index, row in enumerate(rows) if row.sample is not None]


def _scored_places(rows: list[PlanRow], starts: np.ndarray) -> np.ndarray:
    """The flattened rows that predict the rows' targets, int64. starts: of each row among them."""
    places = [np.zeros(0, dtype=np.int64)]
    for row, start in zip(rows, starts.tolist(), strict=True):
        places.append(np.arange(start, start + len(row.targets) // 4, dtype=np.int64))
    return np.concatenate(places)


def _scores(rows: list[PlanRow], logits: torch.Tensor) -> dict[int, list[TokenScore]]:
    """The scores of the rows' targets by sequence, given the logits [targets, vocab]."""
    found: dict[int, list[TokenScore]] = {}
    first = 0
    for row in rows:
        if row.targets:
            targets = np.frombuffer(row.targets, dtype="<i4").tolist()
            own = logits[first : first + len(targets)]
            found[row.sequence_id] = [score(*pair) for pair in zip(own, targets, strict=True)]
            first += len(targets)
    return found


class Runner:
    """Owns the model and its page pool's tensors. Used by the engine's thread only."""

    def __init__(self, model: Model, device: torch.device, head: Head = VOCABULARY) -> None:
        """head: the one that the model was loaded with."""
        self._backend = Interruptible(model.backend)
        model.backend = self._backend
        self._model = model
        self._device = device
        self._head = head

    def run(self, plan: StepPlan, checkpoint: Callable[[], None]) -> StepResult:
        """Computes the plan and samples where asked."""
        return self.draw(plan, self.compute(plan, checkpoint))

    def compute(self, plan: StepPlan, checkpoint: Callable[[], None]) -> torch.Tensor:
        """Poisons and copies pages, computes all rows in one forward.

        Returns the logits [rows that ask for a token + tokens to score, vocab], in that order.
        """
        if plan.poison:
            self._backend.fill_pages(plan.poison, float("nan"))
        if plan.copies:
            sources, targets = zip(*plan.copies, strict=True)
            self._backend.copy_pages(list(sources), list(targets))
        self._backend.checkpoint = checkpoint
        rows = plan.rows
        tokens = np.frombuffer(b"".join([row.tokens for row in rows]), dtype="<i4")
        lengths = np.array([len(row.tokens) // 4 for row in rows], dtype=np.int32)
        starts = np.array([row.start for row in rows], dtype=np.int64)
        ends = np.cumsum(lengths)
        positions = _positions(starts, lengths)
        batch = self._batch(rows, lengths, starts, positions)
        wanted = _wanted(rows)
        last = ends[wanted].astype(np.int64) - 1
        with torch.inference_mode():
            return self._model.forward(
                self._tensor(tokens.astype(np.int64)),
                self._tensor(positions),
                batch,
                self._tensor(np.concatenate([last, _scored_places(rows, ends - lengths)])),
            )

    def draw(self, plan: StepPlan, logits: torch.Tensor) -> StepResult:
        """Returns samples and scores, or values, given what `compute` returned for the plan."""
        rows, wanted = plan.rows, _wanted(plan.rows)
        if not isinstance(self._head, Vocabulary):
            read, numbers = self._head.read, (rows[index].sequence_id for index in wanted)
            return StepResult([], values=dict(zip(numbers, map(read, logits), strict=True)))
        with torch.inference_mode():
            asked = [row.sample for row in rows if row.sample is not None]
            drawn = sample(logits[: len(wanted)], asked)
            scored = _scores(rows, logits[len(wanted) :])
        return StepResult(
            [
                Sampled(rows[index].sequence_id, token, logprobs)
                for index, (token, logprobs) in zip(wanted, drawn, strict=True)
            ],
            scored,
        )

    def _batch(
        self, rows: list[PlanRow], lengths: np.ndarray, starts: np.ndarray, positions: np.ndarray
    ) -> AttentionBatch:
        page_size = self._backend.shape.page_size
        width = max(len(row.table) for row in rows)
        tables = np.zeros((len(rows), width), dtype=np.int32)
        for index, row in enumerate(rows):
            tables[index, : len(row.table)] = row.table
        owner = np.repeat(np.arange(len(rows)), lengths)
        pages = tables[owner, positions // page_size].astype(np.int64)
        context = (starts + lengths).astype(np.int32)
        cumulated = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        batch = AttentionBatch(
            query_start=torch.from_numpy(cumulated),
            context_len=torch.from_numpy(context),
            block_table=torch.from_numpy(tables),
            slot_mapping=torch.from_numpy(pages * page_size + positions % page_size),
            page_size=page_size,
            max_query_len=int(lengths.max()),
            max_context_len=int(context.max()),
            budget=self._budget(rows),
        )
        return batch.on_device(self._device)

    def _budget(self, rows: list[PlanRow]) -> torch.Tensor | None:
        """int32 [rows], None where every row reads all."""
        budget = np.array([row.budget for row in rows], dtype=np.int32)
        return torch.from_numpy(budget) if budget.any() else None

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)


def _nothing() -> None:
    """Nobody wants to interrupt."""


def _positions(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The position of every flattened token, int64."""
    before = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    positions = np.arange(int(lengths.sum()), dtype=np.int64)
    positions += np.repeat(starts - before, lengths)
    return positions
