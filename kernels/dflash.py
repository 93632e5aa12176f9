"""Which part of a long context a decode row reads: the choice, as every backend has to make it.

dflash is fused split-KV attention over chosen tiles of 16 positions (not the speculative decoding
of the same name). Beside K and V the pool keeps a sketch of every key: codes in [-7, 7], four bits
per dimension, and a scale (`kernels.codes`). A query in eight bits meets the sketches in whole
numbers, so the product has the same bits everywhere, and gives nearly what attention would: a tile
is worth the share of a row's attention that lies in it by the sketches. Query heads that share a kv
head read the same tiles: a tile is worth what it is worth to the head that it is worth most to.

    score[i] = (sum over d of code[i, d] * query code[d]) * scale[i] * query scale * attention scale
    worth    = sum over the tile of exp(score) / sum over the context of exp(score)

Bounds of a tile's keys (Quest, arXiv 2406.10774) take as many bytes and say less: the extremes of
64 dimensions never meet in one key. Chosen by them, the mean KL from
dense attention is 38 times as large (docs/benchmarks.md).

A row with a budget of b tokens reads ceil(b / 16) tiles: the first, the last RECENT, and those that
are worth most; of equals the earlier. A budget that covers the context, a prefill chunk and a layer
with a sliding window read all, and with the dense arithmetic.
"""

from __future__ import annotations

import torch

from kernels.codes import Codes, encode
from kernels.interface import TILE, AttentionParams

FIRST = 1
RECENT = 4
LARGEST_KEY = 7.0
LARGEST_QUERY = 127.0


def tiles_of(tokens: int) -> int:
    """Returns how many tiles so many tokens fill or begin."""
    return -(-tokens // TILE)


def is_sparse(budget: int, context: int) -> bool:
    """Whether a decode row with this budget reads less than its whole context."""
    return budget > 0 and max(tiles_of(budget), FIRST + RECENT) < tiles_of(context)


def sketch(keys: torch.Tensor) -> Codes:
    """Returns keys [..., D], as they are stored, in four bits."""
    return encode(keys, LARGEST_KEY)


def shares(query: torch.Tensor, keys: torch.Tensor, params: AttentionParams) -> torch.Tensor:
    """Returns what share of each head's attention lies in each tile: float32 [num_heads, tiles].

    query: [num_heads, D]. keys: [context, kv_heads, D], as they are stored.
    """
    asked, kept = encode(query.to(keys.dtype), LARGEST_QUERY), sketch(keys)
    grouped = asked.code.view(keys.shape[1], -1, query.shape[-1])
    product = torch.einsum("hgd,nhd->hgn", grouped, kept.code)
    score = (
        product * kept.scale.T[:, None] * (asked.scale * params.scale).view(keys.shape[1], -1, 1)
    )
    if params.softcap is not None:
        score = params.softcap * torch.tanh(score / params.softcap)
    weight = score.flatten(0, 1).softmax(-1)
    return torch.stack([part.sum(-1) for part in torch.split(weight, TILE, dim=-1)], dim=-1)


def choose(
    query: torch.Tensor, keys: torch.Tensor, budget: int, params: AttentionParams
) -> torch.Tensor:
    """Returns the tiles that a row reads: bool [kv_heads, tiles].

    query: [num_heads, D]. keys: [context, kv_heads, D], as they are stored. The row is sparse.
    """
    by_head = shares(query, keys, params)
    worth = by_head.view(keys.shape[1], -1, by_head.shape[-1]).amax(1)
    worth[:, :FIRST] = worth[:, -RECENT:] = float("inf")
    best = worth.argsort(dim=-1, descending=True, stable=True)
    chosen = torch.zeros_like(worth, dtype=torch.bool)
    return chosen.scatter_(1, best[:, : max(tiles_of(budget), FIRST + RECENT)], True)
