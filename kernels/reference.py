"""The `reference` attention backend: slow and obvious, the truth that tests compare with.

Gathers a sequence's K/V, computes all scores, masks, softmax. Any floating dtype; computes in the
pool's dtype (float64 for tests of the others).
"""

from __future__ import annotations

import torch

from kernels.dflash import choose, is_sparse
from kernels.eight_bit import store
from kernels.interface import TILE, AttentionBatch, AttentionParams, KVShape
from kernels.rows import budgets_of, slots_of


class ReferenceAttention:
    """AttentionBackend in plain torch. Layout: [layers, slots, kv_heads, head_dim]."""

    name = "reference"
    bitwise = False

    def __init__(self, shape: KVShape, device: torch.device | str = "cpu") -> None:
        self.shape = shape
        slots = shape.num_pages * shape.page_size
        size = (shape.num_layers, slots, shape.num_kv_heads, shape.head_dim)
        self._keys = torch.zeros(size, dtype=shape.dtype, device=device)
        self._values = torch.zeros(size, dtype=shape.dtype, device=device)

    def write(
        self, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch
    ) -> None:
        """Stores key and value [T, num_kv_heads, head_dim] in the batch's slots."""
        self._keys[layer, batch.slot_mapping] = self._stored(key)
        self._values[layer, batch.slot_mapping] = self._stored(value)

    def attend(
        self, layer: int, query: torch.Tensor, batch: AttentionBatch, params: AttentionParams
    ) -> torch.Tensor:
        """Returns causal attention [T, num_heads, head_dim] of query over the pages."""
        out = torch.empty_like(query)
        starts, contexts = batch.query_start.tolist(), batch.context_len.tolist()
        budgets = budgets_of(batch, params)
        for s, context in enumerate(contexts):
            begin, end = starts[s], starts[s + 1]
            slots = slots_of(batch, s, 0, context)
            if end - begin == 1 and is_sparse(budgets[s], context):
                out[begin] = self._attend_chosen(layer, query[begin], slots, budgets[s], params)
                continue
            keys, values = self._keys[layer, slots], self._values[layer, slots]
            for row in range(begin, end):
                position = context - (end - row)
                out[row] = self._attend_row(query[row], keys, values, position, params)
        return out

    def _attend_chosen(
        self,
        layer: int,
        query: torch.Tensor,
        slots: torch.Tensor,
        budget: int,
        params: AttentionParams,
    ) -> torch.Tensor:
        """Attends one query [num_heads, head_dim] over the chosen tiles of its context's slots."""
        keys, values = self._keys[layer, slots], self._values[layer, slots]
        chosen = choose(query, keys, budget, params).repeat_interleave(TILE, 1)[:, : slots.numel()]
        heads = query.view(keys.shape[1], -1, query.shape[-1])
        parts = []
        for head, seen in enumerate(chosen):
            own_keys, own_values = keys[seen, head, None], values[seen, head, None]
            last = int(seen.sum()) - 1
            parts.append(self._attend_row(heads[head], own_keys, own_values, last, params))
        return torch.cat(parts)

    def _attend_row(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        position: int,
        params: AttentionParams,
    ) -> torch.Tensor:
        """Attends one query [num_heads, head_dim] at a position over [0, position]."""
        first = 0
        if params.sliding_window is not None:
            first = max(0, position - params.sliding_window + 1)
        group = query.shape[0] // keys.shape[1]
        seen_keys = keys[first : position + 1].repeat_interleave(group, dim=1)
        seen_values = values[first : position + 1].repeat_interleave(group, dim=1)
        scores = torch.einsum("hd,thd->ht", query.to(keys.dtype), seen_keys) * params.scale
        if params.softcap is not None:
            scores = params.softcap * torch.tanh(scores / params.softcap)
        result = torch.einsum("ht,thd->hd", scores.softmax(dim=-1), seen_values)
        return result.to(query.dtype)

    def _stored(self, x: torch.Tensor) -> torch.Tensor:
        """What is read of x once it is stored."""
        return (store(x).read() if self.shape.eight_bit else x).to(self.shape.dtype)

    def copy_pages(self, source: list[int], target: list[int]) -> None:
        """Copies whole pages, all layers, K and V: target[i] becomes equal to source[i]."""
        for pool in (self._keys, self._values):
            pages = self._by_page(pool)
            pages[:, target] = pages[:, source]

    def fill_pages(self, pages: list[int], value: float) -> None:
        """Sets every element of the pages (tests poison freed pages with NaN)."""
        for pool in (self._keys, self._values):
            self._by_page(pool)[:, pages] = value

    def _by_page(self, pool: torch.Tensor) -> torch.Tensor:
        return pool.view(pool.shape[0], -1, self.shape.page_size, *pool.shape[2:])
