"""One attention layer at a time: what it takes, and what that is in bytes and products a second."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels import KEEPS_EIGHT_BIT, Place, make_backend
from kernels.interface import AttentionBackend, AttentionBatch, AttentionParams, KVShape
from loadtest.gpu_check.batches import Span, batch_of, fill, num_pages, tables_of
from loadtest.gpu_check.findings import Figure, Row
from loadtest.gpu_check.machine import seconds_of
from loadtest.gpu_check.scale import Scale


@dataclass(frozen=True, slots=True)
class Load:
    """A batch to attend. kept: eight bits, bounds."""

    batch: AttentionBatch
    pages: int
    eight_bit: bool = False
    sketched: bool = False


def measure(scale: Scale, member: str) -> list[Row]:
    """Returns all of it; what the member refuses says so."""
    rows = []
    for piece in (decode, shared, prefill, dflash):
        try:
            rows += piece(scale, member)
        except ValueError as error:
            rows.append(Row(f"{member}, {piece.__name__}", {"refused": str(error)}))
    return rows


def decode(scale: Scale, member: str) -> list[Row]:
    """Decode rows with pages of their own, in full and, where they are kept so, in eight bits."""
    rows = []
    for eight_bit in (False, True) if member in KEEPS_EIGHT_BIT else (False,):
        tables = tables_of(scale.batch, scale.context, 0, scale.page_size)
        load = Load(_decode(tables, scale.context, scale), num_pages(tables), eight_bit)
        what = f"{member}, decode {scale.batch} x {scale.context:,}"
        rows.append(_decoded(scale, member, f"{what}{', eight bits' if eight_bit else ''}", load))
    return rows


def shared(scale: Scale, member: str) -> list[Row]:
    """The same rows with most of their pages in common: over the time with pages of their own."""
    times = []
    for common in (0, scale.shared):
        tables = tables_of(scale.batch, scale.context, common, scale.page_size)
        load = Load(_decode(tables, scale.context, scale), num_pages(tables))
        times.append(_seconds(scale, member, load))
    apart, together = times
    figures: dict[str, Figure] = {"apart_us": apart * 1e6, "shared_us": together * 1e6}
    what = f"{member}, {scale.batch} rows that share {scale.shared:,} of {scale.context:,}"
    return [Row(what, figures | {"speedup": apart / together})]


def dflash(scale: Scale, member: str) -> list[Row]:
    """Long contexts read in part: over the time that all of them takes."""
    tables = tables_of(scale.long_batch, scale.long_context, 0, scale.page_size)
    times = []
    for budget in (0, scale.budget):
        batch = _decode(tables, scale.long_context, scale, budget)
        times.append(_seconds(scale, member, Load(batch, num_pages(tables), sketched=True)))
    dense, sparse = times
    figures: dict[str, Figure] = {"dense_us": dense * 1e6, "sparse_us": sparse * 1e6}
    what = f"{member}, {scale.budget:,} of {scale.long_batch} x {scale.long_context:,}"
    return [Row(what, figures | {"speedup": dense / sparse})]


def prefill(scale: Scale, member: str) -> list[Row]:
    """A whole prompt, and a chunk behind what is cached."""
    rows = []
    for begin, end in ((0, scale.context), (scale.shared, scale.context)):
        table = list(range(-(-end // scale.page_size)))
        batch = batch_of([Span(table, begin, end)], scale.page_size)
        seconds = _seconds(scale, member, Load(batch, len(table)))
        pairs = (end * (end + 1) - begin * (begin + 1)) / 2
        products = 4.0 * pairs * scale.heads.num_heads * scale.heads.head_dim
        figures: dict[str, Figure] = {"us": seconds * 1e6, "tflop_s": products / seconds / 1e12}
        rows.append(Row(f"{member}, prefill {end - begin:,} behind {begin:,}", figures))
    return rows


def _decode(tables: list[list[int]], context: int, scale: Scale, budget: int = 0) -> AttentionBatch:
    spans = [Span(table, context - 1, context) for table in tables]
    return batch_of(spans, scale.page_size, budget)


def _decoded(scale: Scale, member: str, what: str, load: Load) -> Row:
    try:
        seconds = _seconds(scale, member, load)
    except ValueError as error:
        return Row(what, {"refused": str(error)})
    shape = _shape(scale, load)
    read = scale.batch * scale.context * shape.bytes_per_token / shape.num_layers
    return Row(what, {"us": seconds * 1e6, "gb_s": read / seconds / 1e9})


def _seconds(scale: Scale, member: str, load: Load) -> float:
    """What one layer's attention over the load takes."""
    backend: AttentionBackend = make_backend(member, _shape(scale, load), Place(scale.device))
    for layer in range(backend.shape.num_layers):
        fill(backend, scale, layer)
    device, heads = torch.device(scale.device), scale.heads
    batch = load.batch.on_device(device)
    size = (batch.slot_mapping.numel(), heads.num_heads, heads.head_dim)
    query = torch.randn(size, device=device, dtype=torch.float32).to(scale.dtype)
    params = AttentionParams(heads.head_dim**-0.5)
    layers = iter(range(10**9))

    def attend() -> None:
        # One layer after the other, so that none finds its pages in the processor's cache.
        backend.attend(next(layers) % backend.shape.num_layers, query, batch, params)

    return seconds_of(attend, scale)


def _shape(scale: Scale, load: Load) -> KVShape:
    return KVShape(
        num_layers=2,
        num_pages=load.pages,
        page_size=scale.page_size,
        num_kv_heads=scale.heads.num_kv_heads,
        head_dim=scale.heads.head_dim,
        dtype=scale.dtype,
        eight_bit=load.eight_bit,
        sketched=load.sketched,
    )
