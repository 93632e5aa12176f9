"""The page pool of the `cpu` backend: memory in the layout of pages.h, seen as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.cpu.memory import large_buffer
from kernels.interface import KVShape

LANES = 16
SCALES_BYTES = LANES * 4


@dataclass(frozen=True, slots=True)
class Layout:
    """What the library says of its memory: of a block, of its sketch, and how wide values are."""

    block_bytes: int
    sketch_bytes: int
    width: int


class Pool:
    """K/V of all layers, and sketches of keys where the shape asks for them."""

    def __init__(self, shape: KVShape, layout: Layout) -> None:
        self._page_size = shape.page_size
        blocks = -(-shape.num_pages * shape.page_size // LANES)
        of_blocks = (shape.num_layers, blocks, shape.num_kv_heads)
        # Touched now: where a request is the first to touch a page, it waits for the memory.
        self._bytes = large_buffer(*of_blocks, layout.block_bytes, dtype=torch.int8).zero_()
        self._streams = list(_streams(self._bytes, shape, layout.width))
        self.at = [layer.data_ptr() for layer in self._bytes]
        self._sketches: torch.Tensor | None = None
        self.sketches_at: list[int | None] = [None] * shape.num_layers
        if shape.sketched:
            sketches = large_buffer(*of_blocks, layout.sketch_bytes, dtype=torch.int8)
            self._sketches = sketches.zero_()
            self.sketches_at = [layer.data_ptr() for layer in self._sketches]

    @property
    def nbytes(self) -> int:
        """All that it takes."""
        return self._bytes.nbytes + (0 if self._sketches is None else self._sketches.nbytes)

    def copy(self, source: list[int], target: list[int]) -> None:
        """Copies whole pages: target[i] becomes equal to source[i]."""
        old_block, old_lane = self._places(source)
        block, lane = self._places(target)
        for stream in self._streams:
            stream[:, block, :, lane] = stream[:, old_block, :, old_lane]
        if self._sketches is not None:
            self._sketches[:, block] = self._sketches[:, old_block]

    def fill(self, pages: list[int], value: float) -> None:
        """Sets every element of the pages; in eight bits, all but zero and NaN within rounding."""
        block, lane = self._places(pages)
        for stream in self._streams:
            element = value
            if len(self._streams) > 2:
                element = value / 127.0 if stream.is_floating_point() else 127.0
            stream[:, block, :, lane] = element
        if self._sketches is not None:
            scales = self._sketches[..., -SCALES_BYTES:].view(torch.float32)
            scales[:, block, :, lane] = value

    def _places(self, pages: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        size = self._page_size
        slots = (torch.tensor(pages)[:, None] * size + torch.arange(size)).flatten()
        return slots // LANES, slots % LANES


def _streams(blocks: torch.Tensor, shape: KVShape, width: int) -> list[torch.Tensor]:
    """Keys and values (and their scales) as views [layers, blocks, kv_heads, 16 lanes, ...]."""
    itemsize = 1 if shape.eight_bit else 4
    sizes = [shape.head_dim * LANES * itemsize, LANES * width * itemsize]
    if shape.eight_bit:
        sizes = [sizes[0], LANES * 4, sizes[1], LANES * 4]
    parts = torch.split(blocks, sizes, dim=-1)  # bytes
    if not shape.eight_bit:
        keys, values = (part.view(torch.float32) for part in parts)
        return [_keys_by_lane(keys, shape), _values_by_lane(values, width)]
    keys, key_scale, values, value_scale = parts
    scales = [part.view(torch.float32) for part in (key_scale, value_scale)]
    return [_keys_by_lane(keys, shape), _values_by_lane(values, width), *scales]


def _keys_by_lane(keys: torch.Tensor, shape: KVShape) -> torch.Tensor:
    return keys.view(*keys.shape[:-1], shape.head_dim, LANES).transpose(-1, -2)


def _values_by_lane(values: torch.Tensor, width: int) -> torch.Tensor:
    return values.view(*values.shape[:-1], LANES, width)
