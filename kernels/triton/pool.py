"""Where K/V lies: pages of one layer, then kv heads, so a head's page is one piece of memory.

keys, values   [layers, pages, kv_heads, page_size, D], of the pool's dtype or int8
scales         float32 [layers, pages, kv_heads, page_size], where the pool is in eight bits
codes          uint8 [layers, pages, kv_heads, page_size, D / 2], where it is sketched: of two
               dimensions a byte, the even one's code + 8 in its low half (`kernels.dflash`)
code_scales    float32 [layers, pages, kv_heads, page_size]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.dflash import sketch
from kernels.eight_bit import store
from kernels.interface import TILE, KVShape

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MAX_HEAD_DIM = 256


@dataclass(frozen=True, slots=True)
class Pool:
    """The tensors of all layers, or of one. What the shape does not ask for has no elements."""

    keys: torch.Tensor
    values: torch.Tensor
    key_scales: torch.Tensor
    value_scales: torch.Tensor
    codes: torch.Tensor
    code_scales: torch.Tensor

    def layer(self, index: int) -> Pool:
        """Returns views of one layer."""
        return Pool(*(x[index] if x.numel() else x for x in self.tensors()))

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Returns them all, in the order of the fields."""
        scales = self.key_scales, self.value_scales
        return self.keys, self.values, *scales, self.codes, self.code_scales

    def used(self) -> list[torch.Tensor]:
        """Returns those that have elements."""
        return [x for x in self.tensors() if x.numel()]


def make_pool(shape: KVShape, device: str) -> Pool:
    """Returns a pool of zeros. Raises ValueError for what the kernels can't hold."""
    _check(shape)
    pages = (shape.num_layers, shape.num_pages, shape.num_kv_heads)
    none = torch.zeros(0, device=device)
    kept = torch.int8 if shape.eight_bit else shape.dtype
    size = (*pages, shape.page_size, shape.head_dim)
    keys, values = (torch.zeros(size, dtype=kept, device=device) for _ in range(2))
    scales = [none, none]
    if shape.eight_bit:
        scales = [torch.zeros(*pages, shape.page_size, device=device) for _ in range(2)]
    codes, code_scales = none, none
    if shape.sketched:
        width = (shape.head_dim + 1) // 2
        codes = torch.zeros(*pages, shape.page_size, width, dtype=torch.uint8, device=device)
        code_scales = torch.zeros(*pages, shape.page_size, device=device)
    return Pool(keys, values, scales[0], scales[1], codes, code_scales)


def _check(shape: KVShape) -> None:
    if shape.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise ValueError(f"the triton backend computes {names}, not {shape.dtype}")
    if not 1 <= shape.head_dim <= MAX_HEAD_DIM:
        raise ValueError(f"head_dim is {shape.head_dim}, not in 1..{MAX_HEAD_DIM}")
    for name in ("num_layers", "num_pages", "page_size", "num_kv_heads"):
        if getattr(shape, name) < 1:
            raise ValueError(f"{name} is {getattr(shape, name)}, not positive")
    if shape.sketched and shape.page_size % TILE:
        raise ValueError(f"page_size is {shape.page_size}: dflash needs a multiple of {TILE}")


def fill(pool: Pool, pages: list[int], value: float) -> None:
    """Sets every element of the pages, sketches too, as storing the value would."""
    one = store(torch.tensor([value]))
    eight_bit = pool.key_scales.numel() > 0
    for kept in (pool.keys, pool.values):
        kept[:, pages] = int(one.stored) if eight_bit else value
    if eight_bit:
        for scales in (pool.key_scales, pool.value_scales):
            scales[:, pages] = float(one.scale)
    if pool.codes.numel():
        drawn = sketch(one.read() if eight_bit else torch.tensor([value]))
        pool.codes[:, pages] = int(drawn.code + 8) * 17
        pool.code_scales[:, pages] = float(drawn.scale)
