"""The `gather` attention backend: plain torch on any device, one masked product per sequence.

Serves where no compiler is and, until a better member fits, CUDA. Its matrix products choose
their order of summation by shape, so results are equal to the reference's but not bitwise stable.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from kernels.dflash import is_sparse
from kernels.interface import AttentionBatch, AttentionParams
from kernels.reference import ReferenceAttention
from kernels.rows import budgets_of, slots_of


class GatherAttention(ReferenceAttention):
    """AttentionBackend that gathers K/V and calls torch's fused attention where it can."""

    name = "gather"

    def attend(
        self, layer: int, query: torch.Tensor, batch: AttentionBatch, params: AttentionParams
    ) -> torch.Tensor:
        """Returns causal attention [T, num_heads, head_dim] of query over the pages."""
        out = torch.empty_like(query)
        starts, contexts = batch.query_start.tolist(), batch.context_len.tolist()
        budgets = budgets_of(batch, params)
        for s, context in enumerate(contexts):
            rows = slice(starts[s], starts[s + 1])
            if starts[s + 1] - starts[s] == 1 and is_sparse(budgets[s], context):
                slots = slots_of(batch, s, 0, context)
                out[rows] = self._attend_chosen(layer, query[starts[s]], slots, budgets[s], params)
                continue
            first = _first_seen(context - (starts[s + 1] - starts[s]), params)
            slots = slots_of(batch, s, first, context)
            keys, values = self._keys[layer, slots], self._values[layer, slots]
            out[rows] = _attend_sequence(query[rows], keys, values, params)
        return out


def _first_seen(position: int, params: AttentionParams) -> int:
    """The first position that a query at this position sees."""
    if params.sliding_window is None:
        return 0
    return max(0, position - params.sliding_window + 1)


def _attend_sequence(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, params: AttentionParams
) -> torch.Tensor:
    """Attends query [q, H, D], the last q of the n positions in keys and values [n, KV, D]."""
    count, total = query.shape[0], keys.shape[0]
    q, k, v = (x.transpose(0, 1)[None] for x in (query.to(keys.dtype), keys, values))
    position = torch.arange(total, device=query.device)
    own = position[total - count :, None]
    seen = position <= own
    if params.sliding_window is not None:
        seen &= position > own - params.sliding_window
    if params.softcap is None:
        mask = None if count == 1 and bool(seen.all()) else seen
        result = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=params.scale, enable_gqa=q.shape[1] != k.shape[1]
        )
    else:
        group = q.shape[1] // k.shape[1]
        scores = q @ k.repeat_interleave(group, 1).transpose(-1, -2) * params.scale
        scores = params.softcap * torch.tanh(scores / params.softcap)
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        result = weights @ v.repeat_interleave(group, 1)
    return result[0].transpose(0, 1).to(query.dtype)
