"""Decode steps as CUDA graphs, one per batch size; other steps run as they are.

    capture at the start   sizes 1, 2, 4, 8, 16, ...: the forward over static tensors
    a decode step of n     n rows are copied in, the rest of the size is padding, the graph runs
                           again, the padding's logits are dropped

    rows      |<-- n sequences -->|<-- padding: one token on the scratch page -->|
    pages     0 ... num_pages - 1 are the pool's;  num_pages is the scratch page, nobody else's

A decode step of a small model is hundreds of launches, and the host can't make them as fast as a
GPU runs them. What runs again does not pass through Python: such a step can't be interrupted
between its layers. Not yet run on a GPU; tests capture with a member that calls again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from kernels.interface import AttentionBackend, AttentionBatch, Holding, KVShape, can_capture
from worker.model.interface import Model

logger = logging.getLogger(__name__)

WARM_RUNS = 2
STEP, MAX_SIZE = 8, 256


@dataclass(frozen=True, slots=True)
class Recording:
    """A captured step. replay: computes it again from its static inputs into `output`."""

    replay: Callable[[], None]
    output: torch.Tensor


class Capture(Protocol):
    """How steps are captured. Members: `CudaCapture`, and the tests' own."""

    def record(self, step: Callable[[], torch.Tensor]) -> Recording:
        """Runs the step and returns it captured."""


class Windowed(Model, Protocol):
    """A model that can be captured. windows: the sliding windows of its layers, each once."""

    windows: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class GraphRoom:
    """What is captured. scratch_page: of the backend, and of no sequence. max_pages: of a sequence.

    sizes: of the batches, ascending.
    """

    sizes: tuple[int, ...]
    scratch_page: int
    max_pages: int
    device: torch.device


def sizes_up_to(limit: int) -> tuple[int, ...]:
    """Returns the batch sizes that are worth a graph where up to `limit` sequences run together."""
    known = (1, 2, 4, *range(STEP, MAX_SIZE + STEP, STEP))
    return known[: sum(size < limit for size in known) + 1]


class CudaCapture:
    """Captures with torch; all graphs share one memory pool, since only one runs at a time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, step: Callable[[], torch.Tensor]) -> Recording:
        """Runs the step on a stream of its own, so that all is compiled, and captures it."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_RUNS):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            output = step()
        return Recording(graph.replay, output)


class _Tensors:
    """One batch's tensors in one place, refilled for every step."""

    def __init__(self, size: int, room: GraphRoom, shape: KVShape, device: torch.device) -> None:
        self._scratch, self._used = room.scratch_page, 1
        lengths = torch.ones(size, dtype=torch.int32, device=device)
        self.batch = AttentionBatch(
            query_start=torch.arange(size + 1, dtype=torch.int32, device=device),
            context_len=lengths,
            block_table=torch.zeros(size, room.max_pages, dtype=torch.int32, device=device),
            slot_mapping=torch.zeros(size, dtype=torch.int64, device=device),
            page_size=shape.page_size,
            max_query_len=1,
            max_context_len=room.max_pages * shape.page_size,
            budget=torch.zeros_like(lengths) if shape.sketched else None,
        )

    def fill(self, given: AttentionBatch | None) -> None:
        """The first rows become the given ones, the rest padding; None: all are padding."""
        own, count, width = self.batch, 0, 1
        own.block_table[:, : self._used] = 0
        if given is not None:
            count, width = given.block_table.shape
            own.context_len[:count] = given.context_len
            own.slot_mapping[:count] = given.slot_mapping
            own.block_table[:count, :width] = given.block_table
        own.context_len[count:] = 1
        own.slot_mapping[count:] = self._scratch * own.page_size
        own.block_table[count:, 0] = self._scratch
        if own.budget is not None:
            budget = None if given is None else given.budget
            own.budget[:] = 0
            if budget is not None:
                own.budget[:count] = budget
        self._used = width


class _Step:
    """The captured decode step of one batch size, and all that goes into it."""

    def __init__(self, size: int, model: Windowed, room: GraphRoom, capture: Capture) -> None:
        self._size, self._device = size, room.device
        shape = model.backend.shape
        tensors = [_Tensors(size, room, shape, room.device)]
        self._batch = tensors[0].batch
        if room.device.type != "cpu":
            tensors.append(_Tensors(size, room, shape, torch.device("cpu")))
            self._batch = replace(self._batch, host=tensors[1].batch)
        self._on_device, self._on_host = tensors[0], tensors[-1]
        self._token_ids, self._positions = torch.zeros(2, size, dtype=torch.int64).to(room.device)
        every = torch.arange(size, device=room.device)
        self._planner = model.backend if isinstance(model.backend, Holding) else None
        self._fill(None)
        if self._planner is not None:
            self._planner.hold(self._batch, model.shape.num_heads, model.windows)
        given = (self._token_ids, self._positions, self._batch, every)
        self._recording = capture.record(lambda: model.forward(*given))

    def run(
        self, token_ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch
    ) -> torch.Tensor:
        """Returns the logits of all rows, the padding's included, until the next run."""
        count = token_ids.shape[0]
        for own, given in ((self._token_ids, token_ids), (self._positions, positions)):
            own[:count] = given
            own[count:] = 0
        self._fill(batch)
        if self._planner is not None:
            self._planner.plan(self._batch)
        self._recording.replay()
        return self._recording.output

    def _fill(self, batch: AttentionBatch | None) -> None:
        self._on_device.fill(batch)
        if self._on_host is not self._on_device:
            self._on_host.fill(None if batch is None else batch.on_host)


class GraphedModel:
    """Model that runs another one, its decode steps by graphs. The results are that one's own.

    Raises ValueError where the model's backend can't be captured.
    """

    def __init__(self, model: Windowed, room: GraphRoom, capture: Capture) -> None:
        if not can_capture(model.backend):
            raise ValueError(f"attention {model.backend.name!r} can't be captured")
        self.name, self.bitwise, self.shape = model.name, model.bitwise, model.shape
        self._model, self._room = model, room
        self._sketched = model.backend.shape.sketched
        # The largest first: the smaller ones then fit into its memory.
        with torch.no_grad():
            self._steps = {size: _Step(size, model, room, capture) for size in reversed(room.sizes)}

    @property
    def backend(self) -> AttentionBackend:
        """The pages of the model, through which steps without a graph go."""
        return self._model.backend

    @backend.setter
    def backend(self, backend: AttentionBackend) -> None:
        self._model.backend = backend

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        batch: AttentionBatch,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        """As Model.forward."""
        size = self._size_for(batch)
        if size is None:
            return self._model.forward(token_ids, positions, batch, rows)
        return self._steps[size].run(token_ids, positions, batch)[rows]

    def _size_for(self, batch: AttentionBatch) -> int | None:
        """The smallest captured size that holds a batch; None: it isn't one for a graph."""
        count, width = batch.block_table.shape
        if batch.max_query_len > 1 or width > self._room.max_pages:
            return None
        if batch.budget is not None and not self._sketched:
            return None
        return next((size for size in self._room.sizes if size >= count), None)


def with_graphs(model: Windowed, room: GraphRoom) -> Windowed | GraphedModel:
    """Returns the model with its decode steps captured on CUDA; itself where that can't be."""
    if not can_capture(model.backend):
        logger.info("decode steps are not captured: attention %s can't be", model.backend.name)
        return model
    try:
        graphed = GraphedModel(model, room, CudaCapture())
    except RuntimeError as error:  # out of memory, or a step that captures can't hold
        logger.warning("decode steps are not captured: %s", error)
        return model
    logger.info("decode steps captured: batches of %s", ", ".join(map(str, room.sizes)))
    return graphed
