"""What rank 0 tells the other ranks: frames down a pipe, an Assignment first, then plans.

    length, 4 bytes little-endian | msgpack of the value

A pipe and not a broadcast: it waits as long as there is nothing to do, and it ends when rank 0
does, however that comes about.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import BinaryIO

import msgspec

from worker.model.formats import PLAIN, Formats
from worker.request import Sampling
from worker.step import SampleRow, StepPlan

LENGTH_BYTES = 4
# A step of 1,024 sequences with 8,192 pages each takes 40 MiB.
MAX_FRAME_BYTES = 256 * 1024 * 1024

# Stands for any wish for a token: where logits are wanted is all that other ranks must know.
_ASKS = SampleRow(Sampling(), position=0)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a rank must know to load its shard. rank: from 0; num_ranks: all of them.

    store: the file by which ranks find one another. folder: the model's, absolute. attention,
    dtype, device, threads: as in the worker's settings, dtype decided and device without a number.
    num_pages: of each rank's pool, the same everywhere.
    """

    rank: int
    num_ranks: int
    store: str
    folder: str
    num_pages: int
    page_size: int
    attention: str
    dtype: str
    device: str
    threads: int
    log_level: str
    formats: Formats = PLAIN
    log_format: str = "text"

    @property
    def own_device(self) -> str:
        """The rank's device, as torch names it."""
        return f"cuda:{self.rank}" if self.device == "cuda" else self.device


def bare(plan: StepPlan) -> StepPlan:
    """Returns the plan without what only the sampler needs."""
    rows = [row if row.sample is None else replace(row, sample=_ASKS) for row in plan.rows]
    return replace(plan, rows=rows)


def pack(value: Assignment | StepPlan) -> bytes:
    """Returns the value as one frame. Raises ValueError when it is too large."""
    body = msgspec.msgpack.encode(value)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {len(body)} bytes: at most {MAX_FRAME_BYTES}")
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def read_assignment(pipe: BinaryIO) -> Assignment | None:
    """Returns the first frame, or None when rank 0 is gone."""
    body = _read(pipe)
    return None if body is None else msgspec.msgpack.decode(body, type=Assignment)


def read_plan(pipe: BinaryIO) -> StepPlan | None:
    """Returns the next plan, or None when there will be no more."""
    body = _read(pipe)
    return None if body is None else msgspec.msgpack.decode(body, type=StepPlan)


def _read(pipe: BinaryIO) -> bytes | None:
    """Returns a frame's body; None at the end, also where that cuts a frame."""
    head = pipe.read(LENGTH_BYTES)
    length = int.from_bytes(head, "little")
    if len(head) < LENGTH_BYTES or length > MAX_FRAME_BYTES:
        return None
    body = pipe.read(length)
    return body if len(body) == length else None
