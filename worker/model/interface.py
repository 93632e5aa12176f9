"""What the runner asks of a model: one forward over a flattened ragged batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.interface import AttentionBackend, AttentionBatch


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes that scheduler, cache and runner must know."""

    architecture: str
    vocab_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_model_len: int


class Model(Protocol):
    """A decoder on paged K/V. Members: `lowered` (the Llama shape) and `modules` (transformers').

    backend: owns the pages; every layer goes through it once per forward. bitwise: whether a row's
    logits are the same bits whatever stands beside it, in which chunks and on which pages.
    """

    name: str
    bitwise: bool
    shape: ModelShape
    backend: AttentionBackend

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        batch: AttentionBatch,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        """Returns float32 logits [len(rows), vocab_size] of the given flattened rows.

        Of a model with another head than the vocabulary's, that head's numbers in their place.
        token_ids, positions: int64 [T]. rows: int64, indices into [0, T).
        K/V of all T tokens are in the pages afterwards.
        """
