"""The `triton` attention backend: checks, plans on the host, launches.

Decode rows that read the same pages read them together (`kernels.triton.plan`), so which rows are
side by side can change a result in its last bits: this member is not `bitwise`.

A runner that captures CUDA graphs of decode steps, one per number of sequences:

    hold(batch, num_heads)   once: tables of fixed size for this batch, whose tensors (on the host
                             too) the runner refills in place for each step
    plan(batch)              for each step, outside of the graph: fills the tables
    attend(..., batch, ...)  captured: launches alone, of sizes that no step changes
    release(batch)           gives the tables back

Any other batch is planned at its first `attend`; layers share the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton

from kernels.dflash import tiles_of
from kernels.interface import AttentionBatch, AttentionParams, KVShape
from kernels.triton import copy, launch, pool, write
from kernels.triton.plan import Machine, make_plan
from kernels.triton.runs import costs_of
from kernels.triton.step import Step, step_of
from kernels.triton.tables import Tables, exact_room, spare_room

WAVES = 2  # programs that should be under way for each multiprocessor
CPU_PROGRAMS = 8


@dataclass(slots=True)
class _Planned:
    """A batch, its numbers, and what its layers have asked for, by (window, heads) and by heads.

    held: the tables are for a graph; their sizes stay.
    """

    batch: AttentionBatch
    step: Step
    held: bool = False
    tables: dict[tuple[int | None, int], Tables] = field(default_factory=dict)
    blocks: dict[int, torch.Tensor] = field(default_factory=dict)


class TritonAttention:
    """AttentionBackend in Triton: float32, float16, bfloat16, on a GPU or in the interpreter.

    Raises ValueError for a shape that the kernels can't hold, and on a CPU without interpreter.
    """

    name = "triton"
    bitwise = False

    def __init__(self, shape: KVShape, device: str = "cuda") -> None:
        self._pool = pool.make_pool(shape, device)
        self.shape = shape
        self._device = self._pool.keys.device
        if self._device.type == "cpu" and isinstance(write.write_kernel, triton.JITFunction):
            raise ValueError(
                "attention 'triton' runs on a GPU; on a CPU in Triton's interpreter only, where "
                "TRITON_INTERPRET=1 is set before the start"
            )
        programs = CPU_PROGRAMS
        if self._pool.keys.is_cuda:
            properties = torch.cuda.get_device_properties(self._device)
            programs = WAVES * properties.multi_processor_count
        self._programs = max(1, programs // shape.num_kv_heads)
        self._now: _Planned | None = None
        self._held: list[_Planned] = []

    def write(
        self, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch
    ) -> None:
        """Stores key and value [T, num_kv_heads, head_dim] in the batch's slots."""
        self._planned(batch, layer)
        size = (batch.slot_mapping.numel(), self.shape.num_kv_heads, self.shape.head_dim)
        for name, given in (("key", key), ("value", value)):
            self._check_float(name, given)
            if given.shape != size:
                raise ValueError(f"{name} has the shape {tuple(given.shape)}, not {size}")
        write.write(self._pool.layer(layer), self.shape, key, value, batch.slot_mapping)

    def attend(
        self, layer: int, query: torch.Tensor, batch: AttentionBatch, params: AttentionParams
    ) -> torch.Tensor:
        """Returns causal attention [T, num_heads, head_dim] of query over the pages."""
        planned = self._planned(batch, layer)
        self._check_query(query, batch)
        heads = query.shape[1] // self.shape.num_kv_heads
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        call = launch.Call(self.shape, self._pool.layer(layer), query, out, batch, params)
        if not planned.held:
            blocks = self._blocks(planned, heads)
            if blocks.numel():
                launch.prefill(call, blocks)
        if planned.step.decode.size:
            tables = self._tables(planned, params.sliding_window, heads)
            launch.decode(call, tables, self._widest(planned))
        return out

    def copy_pages(self, source: list[int], target: list[int]) -> None:
        """Copies whole pages, all layers, K and V: target[i] becomes equal to source[i]."""
        if len(source) != len(target):
            raise ValueError(f"{len(source)} source pages, {len(target)} target pages")
        self._check_pages(source + target)
        copy.copy_pages(self._pool, source, target)

    def fill_pages(self, pages: list[int], value: float) -> None:
        """Sets every element of the pages (tests poison freed pages with NaN)."""
        self._check_pages(pages)
        pool.fill(self._pool, pages, value)

    def hold(
        self, batch: AttentionBatch, num_heads: int, windows: tuple[int | None, ...] = (None,)
    ) -> None:
        """Makes and fills tables of fixed size for a batch of decode rows, for a CUDA graph.

        num_heads: of every layer's query. windows: the sliding windows of the layers. A batch with
        a budget gets room for sparse rows; one without can't have them later.
        """
        held = _Planned(batch, step_of(batch, self.shape), held=True)
        heads = num_heads // self.shape.num_kv_heads
        rows = len(held.step.context)
        for window in windows:
            budgeted = batch.budget is not None and window is None
            room = spare_room(rows, heads, self._programs, budgeted)
            held.tables[window, heads] = Tables(room, self.shape, heads, self._device)
        self._held.append(held)
        self.plan(batch)

    def plan(self, batch: AttentionBatch) -> None:
        """Fills the tables of a held batch from what its tensors hold now."""
        held = next(held for held in self._held if held.batch is batch)
        held.step = step_of(batch, self.shape)
        if len(held.step.decode) != len(held.step.context):
            raise ValueError("a held batch has decode rows only, one new token each")
        for (window, heads), tables in held.tables.items():
            self._fill(held.step, window, heads, tables)

    def release(self, batch: AttentionBatch) -> None:
        """Forgets a held batch and its tables."""
        self._held = [held for held in self._held if held.batch is not batch]

    def _planned(self, batch: AttentionBatch, layer: int) -> _Planned:
        """What is known of the batch; one batch value serves all layers of a step."""
        if not 0 <= layer < self.shape.num_layers:
            raise ValueError(f"layer {layer} of {self.shape.num_layers}")
        for held in self._held:
            if held.batch is batch:
                return held
        if self._now is None or self._now.batch is not batch:
            self._now = _Planned(batch, step_of(batch, self.shape))
        return self._now

    def _blocks(self, planned: _Planned, heads: int) -> torch.Tensor:
        """The blocks of the batch's chunks, on the device."""
        if heads not in planned.blocks:
            blocks = torch.from_numpy(planned.step.blocks(heads, launch.wide_rows(self.shape)))
            planned.blocks[heads] = blocks.to(self._device)
        return planned.blocks[heads]

    def _tables(self, planned: _Planned, window: int | None, heads: int) -> Tables:
        """The tables of the batch's decode rows in a layer with this window."""
        if (window, heads) not in planned.tables:
            if planned.held:
                raise ValueError(f"no tables are held for window {window} and {heads} heads")
            planned.tables[window, heads] = self._fill(planned.step, window, heads, None)
        return planned.tables[window, heads]

    def _fill(self, step: Step, window: int | None, heads: int, tables: Tables | None) -> Tables:
        """Plans the step's decode rows into the tables, or into new ones of just the size."""
        shape = self.shape
        rows, chosen = step.rows(window), step.chosen(window)
        if chosen.rows and not shape.sketched:
            raise ValueError("a budget needs a pool with sketches (sketched)")
        key_bytes = shape.head_dim + 4 if shape.eight_bit else shape.head_dim * shape.dtype.itemsize
        costs = costs_of(
            shape.num_kv_heads, heads, key_bytes, shape.head_dim, launch.wide_rows(shape)
        )
        machine = Machine(self._programs, tables.room.partials if tables else None)
        plan = make_plan(rows, chosen, costs, machine)
        if tables is None:
            room = exact_room(plan, len(rows.context), chosen)
            tables = Tables(room, shape, heads, self._device)
        tables.fill(plan, step.row_table(rows), chosen)
        return tables

    def _widest(self, planned: _Planned) -> int:
        """Tiles of the longest context that the batch has, or that it can have where it is held."""
        if planned.held:
            return tiles_of(planned.batch.block_table.shape[1] * self.shape.page_size)
        return tiles_of(int(planned.step.context.max()))

    def _check_query(self, query: torch.Tensor, batch: AttentionBatch) -> None:
        self._check_float("query", query)
        tokens, shape = batch.slot_mapping.numel(), self.shape
        fits = query.ndim == 3 and (query.shape[0], query.shape[2]) == (tokens, shape.head_dim)
        if not fits or not query.shape[1] or query.shape[1] % shape.num_kv_heads:
            raise ValueError(
                f"query has the shape {tuple(query.shape)}, not ({tokens}, a multiple of "
                f"{shape.num_kv_heads}, {shape.head_dim})"
            )

    def _check_float(self, name: str, given: torch.Tensor) -> None:
        if given.dtype not in pool.DTYPES or given.device != self._device:
            raise ValueError(
                f"{name} is {given.dtype} on {given.device}, the pool {self.shape.dtype} on "
                f"{self._device}"
            )

    def _check_pages(self, pages: list[int]) -> None:
        bad = [page for page in pages if not 0 <= page < self.shape.num_pages]
        if bad:
            raise ValueError(f"page {bad[0]} is none of the pool's {self.shape.num_pages}")
