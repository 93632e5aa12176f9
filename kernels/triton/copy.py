"""Copies whole pages, all layers: scales and sketches go with the K/V."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.triton.pool import Pool

BLOCK = 1024


@triton.jit
def copy_kernel(
    source: tl.tensor,
    target: tl.tensor,
    source_pages: tl.tensor,
    target_pages: tl.tensor,
    source_layer: tl.int64,
    target_layer: tl.int64,
    page_elements: int,
    SIZE: tl.constexpr,
) -> None:
    """Copies SIZE elements of a page of a layer. Grid: (pairs, layers, page_elements / SIZE)."""
    pair = tl.program_id(0)
    layer = tl.program_id(1).to(tl.int64)
    element = tl.program_id(2) * SIZE + tl.arange(0, SIZE)
    there = element < page_elements
    old = source + layer * source_layer + tl.load(source_pages + pair) * page_elements
    new = target + layer * target_layer + tl.load(target_pages + pair) * page_elements
    tl.store(new + element, tl.load(old + element, mask=there), mask=there)


def copy_pages(pool: Pool, source: list[int], target: list[int]) -> None:
    """Makes target[i] equal to source[i]; all sources are read before any target is written."""
    if not source:
        return
    device = pool.keys.device
    old, new = (torch.tensor(pages, device=device) for pages in (source, target))
    in_the_way = not set(source).isdisjoint(target)
    for pages in pool.used():
        if in_the_way:
            _copy(pages[:, old], pages, torch.arange(len(source), device=device), new)
        else:
            _copy(pages, pages, old, new)


def _copy(source: torch.Tensor, target: torch.Tensor, old: torch.Tensor, new: torch.Tensor) -> None:
    """Copies pages `old` of source [layers, pages, ...] to pages `new` of target, both int64."""
    elements = target[0, 0].numel()
    grid = (old.numel(), target.shape[0], triton.cdiv(elements, BLOCK))
    copy_kernel[grid](
        source, target, old, new, source.stride(0), target.stride(0), elements, SIZE=BLOCK
    )
