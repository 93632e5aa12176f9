"""Paged attention of every member beside gather + scaled_dot_product_attention, SmolLM2's heads.

Decoding is limited by reading K/V, prefill by multiplying: each case says which share of the rate
that this machine reaches elsewhere (`limits`) a member has. Memory is read in turns with them: on a
machine that others use too it is now twice as fast, now not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from kernels import Place, make_backend
from kernels.bench.clock import contest
from kernels.bench.limits import READ_BYTES, Reading, multiply_rate
from kernels.interface import AttentionBackend, AttentionBatch, AttentionParams, KVShape

SHAPE = KVShape(1, 5200, 16, 3, 64, torch.float32)
HEADS = 9
PARAMS = AttentionParams(scale=0.125)
ERROR_ROWS = 4  # of each case, compared with float64
ROUNDS = 9


@dataclass(frozen=True, slots=True)
class Case:
    """Sequences of `context` tokens that share `shared` of them and compute `new` in the step."""

    name: str
    sequences: int
    context: int
    shared: int = 0
    new: int = 1

    @property
    def operations(self) -> float:
        """Multiplications and additions of q.k and w.v."""
        seen = sum(range(self.context - self.new + 1, self.context + 1))
        return 4.0 * HEADS * SHAPE.head_dim * seen * self.sequences

    @property
    def kv_bytes(self) -> float:
        """K and V, each page once."""
        tokens = self.shared + self.sequences * (self.context - self.shared)
        return float(tokens * SHAPE.bytes_per_token)


DECODE = Case("decode 32 x 2048", 32, 2048)
PREFILL = Case("prefill 32 behind 1500", 1, 1532, 0, 32)
SHARED = Case("decode 32 that share 8192", 32, 8208, 8192)
CASES = (
    Case("decode 1 x 2048", 1, 2048),
    Case("decode 8 x 2048", 8, 2048),
    DECODE,
    Case("decode 32 that share 1504", 32, 1524, 1504),
    SHARED,
    Case("prefill 512", 1, 512, 0, 512),
    PREFILL,
)


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds for one layer: ours, in eight bits, gather + SDPA; the largest error of ours.

    read: bytes a second that as many threads read meanwhile, at best.
    """

    ours_s: float
    eight_bit_s: float
    sdpa_s: float
    error: float
    read: float


def compare(threads: int) -> Iterator[str]:
    """Yields a line per case, then the figures that say it in short."""
    torch.set_num_threads(threads)
    multiply, reading = multiply_rate(), Reading(threads)
    yield f"torch matmul {multiply / 1e9:.0f} GFLOP/s"
    members = _members(threads)
    found = {}
    for case in CASES:
        found[case] = _measure(members, case, reading)
        yield _line(case, found[case], multiply)
    plain_s = _unshared(threads)
    yield f"decode 32 x 8208 of their own: {plain_s * 1e3:.2f} ms"
    yield "kernels: " + " ".join(
        f"{name}={value:.4g}" for name, value in _summary(found, plain_s).items()
    )


def _summary(found: dict[Case, Result], plain_s: float) -> dict[str, float]:
    decode, prefill = found[DECODE], found[PREFILL]
    return {
        "decode_bandwidth_share": DECODE.kv_bytes / decode.ours_s / decode.read,
        "decode_over_sdpa": decode.sdpa_s / decode.ours_s,
        "prefill_over_sdpa": prefill.sdpa_s / prefill.ours_s,
        "cascade_over_plain": plain_s / found[SHARED].ours_s,
    }


def _line(case: Case, result: Result, multiply: float) -> str:
    ours = result.ours_s
    return (
        f"{case.name:26s} cpu {ours * 1e3:8.3f} ms  8 bits {result.eight_bit_s * 1e3:8.3f} ms  "
        f"gather + SDPA {result.sdpa_s * 1e3:8.3f} ms  x{result.sdpa_s / ours:6.2f}  "
        f"memory {case.kv_bytes / ours / result.read:5.2f} of {result.read / 1e9:.1f} GB/s  "
        f"matmul {case.operations / ours / multiply:5.2f}  error {result.error:.1e}"
    )


def _members(threads: int) -> list[AttentionBackend]:
    """cpu, cpu in eight bits, gather, float64: all with the same random K/V."""
    place = Place(threads=threads)
    members = [
        make_backend("cpu", SHAPE, place),
        make_backend("cpu", replace(SHAPE, eight_bit=True), place),
        make_backend("gather", SHAPE, Place()),
        make_backend("reference", replace(SHAPE, dtype=torch.float64), Place()),
    ]
    _fill(*members)
    return members


def _measure(members: list[AttentionBackend], case: Case, reading: Reading) -> Result:
    batch = batch_of(case)
    query = torch.randn(case.sequences * case.new, HEADS, SHAPE.head_dim)
    ours, eight, sdpa, truth = members
    sides: list[Callable[[], object]] = [
        lambda m=m: m.attend(0, query, batch, PARAMS)  # type: ignore[misc]
        for m in (ours, eight, sdpa)
    ]
    times = contest([*sides, reading], ROUNDS)
    few = _last_rows(batch)
    expected = truth.attend(0, query[-ERROR_ROWS:].double(), few, PARAMS)
    error = (ours.attend(0, query, batch, PARAMS)[-ERROR_ROWS:] - expected).abs().max().item()
    return Result(times[0], times[1], times[2], error, READ_BYTES / times[3])


def _unshared(threads: int) -> float:
    """Seconds for sequences of SHARED's length, each on pages of its own."""
    case = Case("", SHARED.sequences, SHARED.context)
    shape = replace(SHAPE, num_pages=case.sequences * -(-case.context // SHAPE.page_size))
    backend = make_backend("cpu", shape, Place(threads=threads))
    backend.fill_pages(list(range(shape.num_pages)), 0.5)
    batch = batch_of(case, shape)
    query = torch.randn(case.sequences, HEADS, SHAPE.head_dim)
    [seconds] = contest([lambda: backend.attend(0, query, batch, PARAMS)], rounds=ROUNDS)
    return seconds


def _last_rows(batch: AttentionBatch) -> AttentionBatch:
    """A batch of the last ERROR_ROWS rows, of one sequence or of as many."""
    rows = min(batch.max_query_len, ERROR_ROWS)
    sequences = ERROR_ROWS // rows
    return replace(
        batch,
        query_start=torch.arange(sequences + 1, dtype=torch.int32) * rows,
        context_len=batch.context_len[-sequences:],
        block_table=batch.block_table[-sequences:],
        max_query_len=rows,
    )


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
    key, value = torch.randn(2, tokens, SHAPE.num_kv_heads, SHAPE.head_dim)
    for backend in backends:
        backend.write(0, key, value, batch)


def batch_of(case: Case, shape: KVShape = SHAPE) -> AttentionBatch:
    """Gives the case's sequences pages scattered over the pool."""
    size = shape.page_size
    free = list(range(shape.num_pages))
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
