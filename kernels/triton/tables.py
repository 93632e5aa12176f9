"""A decode plan on the device: one int32 buffer, so that one copy brings it there.

A step of its own gets tables of just its size. Tables for a CUDA graph have room to spare and stay
where they are; what a plan leaves of them is items of zeros, which do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from kernels.interface import KVShape
from kernels.triton.plan import NARROW, Chosen, Plan
from kernels.triton.runs import Ints


@dataclass(frozen=True, slots=True)
class Room:
    """How many of each there is room for. Launches depend on nothing else."""

    rows: int
    partials: int
    narrow: int
    wide: int
    chosen: int
    sparse: int

    def sections(self) -> dict[str, int]:
        """Returns the ints of each table, in the order in which they lie."""
        return {
            "narrow": 5 * self.narrow,
            "wide": 5 * self.wide,
            "chosen": 5 * self.chosen,
            "owner": self.partials,
            "merge_start": self.rows + 1,
            "merge": self.partials,
            "rows": 4 * self.rows,
            "sparse": self.sparse,
        }


def exact_room(plan: Plan, num_rows: int, chosen: Chosen) -> Room:
    """Returns the room that one plan takes."""
    return Room(
        rows=num_rows,
        partials=len(plan.owner),
        narrow=len(plan.narrow),
        wide=len(plan.wide),
        chosen=len(plan.chosen),
        sparse=len(chosen.rows),
    )


def spare_room(num_rows: int, heads: int, programs: int, budgeted: bool) -> Room:
    """Returns room for any plan of so many rows that fits in its partials.

    A piece has one narrow item at most, a wide one has more than NARROW query rows.
    """
    partials = 4 * num_rows + programs
    return Room(
        rows=num_rows,
        partials=partials,
        narrow=partials,
        wide=partials * heads // (NARROW + 1) if num_rows * heads > NARROW else 0,
        chosen=partials * -(-heads // NARROW) if budgeted else 0,
        sparse=num_rows if budgeted else 0,
    )


class Tables:
    """The tables of `room` as views of one buffer, and the partials' memory."""

    def __init__(self, room: Room, shape: KVShape, heads: int, device: torch.device) -> None:
        self.room = room
        self._ints = torch.zeros(_size(room), dtype=torch.int32, device=device)
        self._at = _begins(room)
        sizes = room.sections()
        self._views = {name: self._ints[at : at + sizes[name]] for name, at in self._at.items()}
        kv_heads, self.capacity = shape.num_kv_heads, room.partials * heads
        self.acc = torch.empty(kv_heads, self.capacity, shape.head_dim, device=device)
        self.stats = torch.empty(2, kv_heads, self.capacity, device=device)

    def view(self, name: str) -> torch.Tensor:
        """Returns one table, flat."""
        return self._views[name]

    def fill(self, plan: Plan, row_table: Ints, chosen: Chosen) -> None:
        """Replaces all tables, without waiting for the device."""
        ints = np.zeros(_size(self.room), dtype=np.int32)
        begin = self._at["sparse"]
        ints[begin : begin + self.room.sparse] = -1
        given = {
            **{name: getattr(plan, name) for name in self._at if hasattr(plan, name)},
            "rows": row_table,
            "sparse": np.array(chosen.rows, dtype=np.int32),
        }
        for name, values in given.items():
            flat = values.ravel()
            assert flat.size <= self.room.sections()[name], name
            ints[self._at[name] : self._at[name] + flat.size] = flat
        host = torch.from_numpy(ints)
        if self._ints.is_cuda:
            host = host.pin_memory()
        self._ints.copy_(host, non_blocking=True)


def _begins(room: Room) -> dict[str, int]:
    """Where each table begins: at multiples of 16 bytes, as the compiler may rely on."""
    begins, at = {}, 0
    for name, size in room.sections().items():
        begins[name] = at
        at += -(-size // 4) * 4
    return begins


def _size(room: Room) -> int:
    return sum(-(-size // 4) * 4 for size in room.sections().values())
