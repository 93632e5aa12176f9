"""Which part of a long context a decode row reads: the choice, as every backend has to make it.

dflash is fused split-KV attention over chosen tiles of 16 positions (not the speculative decoding
of the same name). Of each tile's keys the smallest and largest value per dimension are kept. For a
query q they bound the scores in the tile (Quest, arXiv 2406.10774, which goes by the upper bound):

    upper = sum over d of max(q[d] * low[d], q[d] * high[d])      lower: the same with min
    worth = 3/4 upper + 1/4 lower

The extremes of 64 dimensions never meet in one key, so the bound alone prefers tiles whose keys
differ; with a quarter of the lower one the answers are 2.5 times nearer to the dense ones
(docs/benchmarks.md). Query heads that share a kv head read the same tiles: a tile is worth what it
is worth to the head that it is worth most to.

A row with a budget of b tokens reads ceil(b / 16) tiles: the first, the last RECENT, and those that
are worth most; of equals the earlier. A budget that covers the context, a prefill chunk and a layer
with a sliding window read all, and with the dense arithmetic.
"""

from __future__ import annotations

import torch

from kernels.interface import TILE

FIRST = 1
RECENT = 4


def tiles_of(tokens: int) -> int:
    """Returns how many tiles so many tokens fill or begin."""
    return -(-tokens // TILE)


def is_sparse(budget: int, context: int) -> bool:
    """Whether a decode row with this budget reads less than its whole context."""
    return budget > 0 and max(tiles_of(budget), FIRST + RECENT) < tiles_of(context)


def bounds(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns low and high [tiles, kv_heads, D] of keys [n, kv_heads, D]."""
    parts = torch.split(keys, TILE)
    return torch.stack([p.amin(0) for p in parts]), torch.stack([p.amax(0) for p in parts])


def choose(query: torch.Tensor, keys: torch.Tensor, budget: int) -> torch.Tensor:
    """Returns the tiles that a row reads: bool [kv_heads, tiles].

    query: [num_heads, D]. keys: [context, kv_heads, D], as they are stored. The row is sparse.
    """
    low, high = (
        bound.transpose(0, 1)[:, None] for bound in bounds(keys)
    )  # [kv_heads, 1, tiles, D]
    grouped = query.to(keys.dtype).view(keys.shape[1], -1, 1, query.shape[-1])
    each = 0.75 * torch.maximum(grouped * low, grouped * high)
    each += 0.25 * torch.minimum(grouped * low, grouped * high)
    worth = each.sum(-1).amax(1)  # [kv_heads, tiles]
    worth[:, :FIRST] = worth[:, -RECENT:] = float("inf")
    best = worth.argsort(dim=-1, descending=True, stable=True)
    chosen = torch.zeros_like(worth, dtype=torch.bool)
    return chosen.scatter_(1, best[:, : max(tiles_of(budget), FIRST + RECENT)], True)
