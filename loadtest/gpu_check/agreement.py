"""Each member against the reference in float64: chunks, decodes, shared pages, all that layers ask.

sequence 0   |<-- shared -->|<- own ->|<- chunk ->|
sequence s   |<-- shared -->|<- own ->|.            decodes one token
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from kernels import Place, make_backend
from kernels.interface import AttentionBackend, AttentionBatch, AttentionParams, KVShape
from kernels.reference import ReferenceAttention
from loadtest.gpu_check.batches import Span, batch_of, num_pages, tables_of
from loadtest.gpu_check.findings import Row
from loadtest.gpu_check.scale import Heads, Scale

SEQUENCES, CHUNK = 4, 9
TOLERANCE = {torch.float32: 2e-3, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@dataclass(frozen=True, slots=True)
class Case:
    """What a layer and its pool ask. lengths: shared, own."""

    name: str
    heads: Heads
    lengths: tuple[int, int]
    window: int | None = None
    softcap: float | None = None
    eight_bit: bool = False
    budget: int = 0

    @property
    def params(self) -> AttentionParams:
        """What the layer asks."""
        return AttentionParams(self.heads.head_dim**-0.5, self.window, self.softcap)


def cases(scale: Scale) -> list[Case]:
    """Returns what is compared."""
    heads, small = scale.heads, scale.device == "cpu"
    plain = Case("plain", heads, (32, 7) if small else (192, 45))
    long = (96, 17) if small else (768, 45)
    more = [
        plain,
        replace(plain, name="window", window=20),
        replace(plain, name="softcap", softcap=5.0),
        replace(plain, name="eight bits", eight_bit=True),
        replace(plain, name="dflash", lengths=long, budget=80 if small else 256),
    ]
    if not small:
        more += [
            replace(plain, name="head_dim 64", heads=Heads(9, 3, 64)),
            replace(plain, name="one kv head", heads=Heads(8, 1, 128)),
            replace(plain, name="long", lengths=(4096, 100)),
        ]
    return more


Make = Callable[[str, KVShape, Place], AttentionBackend]


def compare(scale: Scale, member: str, make: Make = make_backend) -> list[Row]:
    """Returns a row for each case; a case that the member refuses says so. make: makes it."""
    return [_row(scale, member, case, make) for case in cases(scale)]


def _row(scale: Scale, member: str, case: Case, make: Make) -> Row:
    place = Place(scale.device)
    try:
        found = _attended(scale, lambda shape: make(member, shape, place), case)
    except ValueError as error:
        return Row(f"{member}, {case.name}", {"refused": str(error)})
    exact = replace(scale, device="cpu", dtype=torch.float64)
    expected = _attended(exact, ReferenceAttention, case, scale.dtype)
    largest = float((found.cpu().double() - expected).abs().max())
    allowed = TOLERANCE[scale.dtype]
    figures = {"largest_error": largest, "allowed": allowed}
    return Row(f"{member}, {case.name}", figures, wrong=not largest <= allowed)


def _attended(
    scale: Scale,
    make: Callable[[KVShape], AttentionBackend],
    case: Case,
    rounded: torch.dtype | None = None,
) -> torch.Tensor:
    """Returns the attention of a mixed step behind one that fills the pages.

    rounded: what keys, values and queries are rounded to; None: the scale's dtype.
    """
    shared, own = case.lengths
    length = shared + own
    tables = tables_of(SEQUENCES, length + CHUNK, shared, scale.page_size)
    heads = case.heads
    shape = KVShape(
        num_layers=2,
        num_pages=num_pages(tables),
        page_size=scale.page_size,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        dtype=scale.dtype,
        eight_bit=case.eight_bit,
        sketched=bool(case.budget),
    )
    backend = make(shape)
    backend.fill_pages(list(range(shape.num_pages)), float("nan"))
    first = [Span(tables[s], shared if s else 0, length) for s in range(SEQUENCES)]
    then = [Span(tables[s], length, length + (1 if s else CHUNK)) for s in range(SEQUENCES)]
    generator = torch.Generator().manual_seed(11)
    found = []
    for spans, budget in ((first, 0), (then, case.budget)):
        batch = batch_of(spans, scale.page_size, budget)
        found.append(_step(backend, batch, case, scale, (generator, rounded or scale.dtype)))
    return torch.cat(found)


def _step(
    backend: AttentionBackend,
    batch: AttentionBatch,
    case: Case,
    scale: Scale,
    drawn: tuple[torch.Generator, torch.dtype],
) -> torch.Tensor:
    """Writes and attends random rows on layer 1."""
    (generator, rounded), heads, count = drawn, case.heads, batch.slot_mapping.numel()
    query, key, value = (
        torch.randn(count, number, heads.head_dim, generator=generator)
        .to(rounded)
        .to(scale.device, scale.dtype)
        for number in (heads.num_heads, heads.num_kv_heads, heads.num_kv_heads)
    )
    given = batch.on_device(torch.device(scale.device))
    backend.write(1, key, value, given)
    return backend.attend(1, query, given, case.params)
