"""Rotary tables for the lowered member, with transformers' own frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

BLOCK = 8192


@dataclass(frozen=True, slots=True)
class Rotary:
    """cosine, sine: float32 [max_model_len, head_dim / 2], scaled by the attention factor."""

    cosine: torch.Tensor
    sine: torch.Tensor


def rotary_of(config: Any, head_dim: int) -> Rotary:
    """Tabulates a text config's rotary embedding for every position it allows."""
    parameters = config.rope_parameters
    kind = parameters.get("rope_type") or "default"
    if kind == "default":
        exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        frequency, factor = 1.0 / (parameters["rope_theta"] ** exponent), 1.0
    else:
        frequency, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    tables = torch.empty(2, config.max_position_embeddings, head_dim // 2)
    for first in range(0, tables.shape[1], BLOCK):
        position = torch.arange(first, min(first + BLOCK, tables.shape[1]), dtype=torch.float32)
        # Angles in float32, as transformers has them; their cosines in float64 so that the
        # table does not depend on how torch splits the work.
        angle = (position[:, None] * frequency).double()
        tables[0, first : first + BLOCK] = angle.cos().float() * factor
        tables[1, first : first + BLOCK] = angle.sin().float() * factor
    return Rotary(tables[0], tables[1])
