"""Paged attention in C against gather + scaled_dot_product_attention, SmolLM2's heads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kernels import Place, make_backend
from kernels.bench.clock import duel
from kernels.interface import AttentionBackend, AttentionBatch, AttentionParams, KVShape

SHAPE = KVShape(8, 2400, 16, 3, 64, torch.float32)
HEADS = 9
PARAMS = AttentionParams(scale=0.125)


@dataclass(frozen=True, slots=True)
class Case:
    """Sequences of `context` tokens that share `shared` of them and compute `new` in the step."""

    name: str
    sequences: int
    context: int
    shared: int
    new: int


CASES = (
    Case("decode, one", 1, 1524, 0, 1),
    Case("decode, 8 of their own", 8, 520, 0, 1),
    Case("decode, 32 of their own", 32, 520, 0, 1),
    Case("decode, 32 share 1504", 32, 1524, 1504, 1),
    Case("prefill 512", 1, 512, 0, 512),
    Case("prefill 32 behind 1504", 1, 1536, 0, 32),
)


def compare(threads: int) -> Iterator[str]:
    """Yields a line per case: ms per layer of both, and how far each is from float64."""
    torch.set_num_threads(threads)
    ours = make_backend("cpu", SHAPE, Place(threads=threads))
    theirs = make_backend("gather", SHAPE, Place())
    truth = make_backend("reference", _one_layer_of(SHAPE), Place())
    _fill(ours, theirs, truth)
    for case in CASES:
        batch = _batch(case)
        query = torch.randn(case.sequences * case.new, HEADS, SHAPE.head_dim)
        result = duel(
            lambda b=batch, q=query: _all_layers(ours, q, b),  # type: ignore[misc]
            lambda b=batch, q=query: _all_layers(theirs, q, b),  # type: ignore[misc]
            rounds=3,
        )
        expected = truth.attend(0, query.double(), batch, PARAMS)
        errors = [
            (backend.attend(0, query, batch, PARAMS) - expected).abs().max().item()
            for backend in (ours, theirs)
        ]
        layers = SHAPE.num_layers
        yield (
            f"attention {case.name:24s} ours {result.ours_s / layers * 1e3:8.3f} ms  "
            f"gather + SDPA {result.theirs_s / layers * 1e3:8.3f} ms  x{result.ratio:5.2f}  "
            f"error {errors[0]:.1e} and {errors[1]:.1e}"
        )


def _one_layer_of(shape: KVShape) -> KVShape:
    return KVShape(
        1, shape.num_pages, shape.page_size, shape.num_kv_heads, shape.head_dim, torch.float64
    )


def _all_layers(backend: AttentionBackend, query: torch.Tensor, batch: AttentionBatch) -> None:
    for layer in range(SHAPE.num_layers):
        backend.attend(layer, query, batch, PARAMS)


def _fill(*backends: AttentionBackend) -> None:
    """Writes the same random K/V to every slot of all backends."""
    tokens = SHAPE.num_pages * SHAPE.page_size
    batch = AttentionBatch(
        query_start=torch.tensor([0, tokens], dtype=torch.int32),
        context_len=torch.tensor([tokens], dtype=torch.int32),
        block_table=torch.arange(SHAPE.num_pages, dtype=torch.int32)[None],
        slot_mapping=torch.arange(tokens),
        page_size=SHAPE.page_size,
        max_query_len=tokens,
        max_context_len=tokens,
    )
    for layer in range(SHAPE.num_layers):
        key, value = torch.randn(2, tokens, SHAPE.num_kv_heads, SHAPE.head_dim)
        for backend in backends:
            if layer < backend.shape.num_layers:
                backend.write(layer, key, value, batch)


def _batch(case: Case) -> AttentionBatch:
    """Gives the case's sequences pages scattered over the pool."""
    size = SHAPE.page_size
    free = list(range(SHAPE.num_pages))
    random.Random(0).shuffle(free)
    prefix = [free.pop() for _ in range(case.shared // size)]
    width = -(-case.context // size)
    tables = [
        prefix + [free.pop() for _ in range(width - len(prefix))] for _ in range(case.sequences)
    ]
    first = case.context - case.new
    return AttentionBatch(
        query_start=torch.arange(case.sequences + 1, dtype=torch.int32) * case.new,
        context_len=torch.full((case.sequences,), case.context, dtype=torch.int32),
        block_table=torch.tensor(tables, dtype=torch.int32),
        slot_mapping=torch.tensor(
            [t[p // size] * size + p % size for t in tables for p in range(first, case.context)]
        ),
        page_size=size,
        max_query_len=case.new,
        max_context_len=case.context,
    )
