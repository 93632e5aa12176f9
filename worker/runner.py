"""Turns a plan into tensors, runs the model once, samples. The only room that sees both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from kernels.interface import AttentionBackend, AttentionBatch, KVShape
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


@dataclass(frozen=True, slots=True)
class _Scoring:
    """Tokens whose scores are wanted. places: the flattened rows that predict them, int64.

    ids, owners: the tokens, and the sequences that they belong to.
    """

    places: np.ndarray
    ids: list[int]
    owners: list[int]

    def scores(self, logits: torch.Tensor) -> dict[int, list[TokenScore]]:
        """Returns the scores by sequence, given the logits [len(places), vocab]."""
        found: dict[int, list[TokenScore]] = {}
        for row, target, owner in zip(logits, self.ids, self.owners, strict=True):
            found.setdefault(owner, []).append(score(row, target))
        return found


def _scoring(rows: list[PlanRow], starts: np.ndarray) -> _Scoring:
    """starts: of each row among the flattened tokens."""
    places: list[np.ndarray] = [np.zeros(0, dtype=np.int64)]
    ids: list[int] = []
    owners: list[int] = []
    for row, start in zip(rows, starts.tolist(), strict=True):
        if row.targets:
            following = np.frombuffer(row.targets, dtype="<i4").tolist()
            places.append(np.arange(start, start + len(following), dtype=np.int64))
            ids += following
            owners += [row.sequence_id] * len(following)
    return _Scoring(np.concatenate(places), ids, owners)


class Runner:
    """Owns the model and its page pool's tensors. Used by the engine's thread only."""

    def __init__(self, model: Model, device: torch.device) -> None:
        self._backend = Interruptible(model.backend)
        model.backend = self._backend
        self._model = model
        self._device = device

    def run(self, plan: StepPlan, checkpoint: Callable[[], None]) -> StepResult:
        """Poisons and copies pages, computes all rows in one forward, samples where asked."""
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
        wanted = [index for index, row in enumerate(rows) if row.sample is not None]
        scoring = _scoring(rows, ends - lengths)
        last = ends[wanted].astype(np.int64) - 1
        with torch.inference_mode():
            logits = self._model.forward(
                self._tensor(tokens.astype(np.int64)),
                self._tensor(positions),
                batch,
                self._tensor(np.concatenate([last, scoring.places])),
            )
            asked = [row.sample for row in rows if row.sample is not None]
            drawn = sample(logits[: len(wanted)], asked)
            scored = scoring.scores(logits[len(wanted) :])
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
        return AttentionBatch(
            query_start=self._tensor(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)),
            context_len=self._tensor(context),
            block_table=self._tensor(tables),
            slot_mapping=self._tensor(pages * page_size + positions % page_size),
            page_size=page_size,
            max_query_len=int(lengths.max()),
            max_context_len=int(context.max()),
        )

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
