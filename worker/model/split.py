"""Which models can be split over several ranks, and what of K/V each rank holds.

The split is transformers' own tensor parallel plan: rules by module name, for each architecture.
Queries, keys and values are split by heads, the output and down projections by columns, and ranks
sum their parts behind those two (Megatron-LM, arXiv 1909.08053).
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

from worker.model.errors import UnsupportedModel

# What modules call the projection that keys come from, alone or fused with others.
KEY_PROJECTIONS = ("k_proj", "qkv_proj", "query_key_value")
SPLIT = "colwise"


def distribution(num_ranks: int) -> DistributedConfig | None:
    """Returns what transformers must be told to load a rank's shard; None: the whole model."""
    return None if num_ranks == 1 else DistributedConfig(tp_plan="auto", tp_size=num_ranks)


def kv_heads_of_rank(config: Any, num_ranks: int) -> int:
    """Returns the K/V heads of each rank: all of them where the model's plan gathers the keys.

    Raises UnsupportedModel where the model can't be split so.
    """
    text = config.get_text_config()
    heads = {"attention": text.num_attention_heads}
    heads["K/V"] = getattr(text, "num_key_value_heads", None) or heads["attention"]
    if num_ranks == 1:
        return int(heads["K/V"])
    with torch.device("meta"):
        plan: dict[str, str] = AutoModelForCausalLM.from_config(
            config, trust_remote_code=False
        ).tp_plan
    if not plan:
        raise UnsupportedModel(
            f"tensor_parallel is {num_ranks}: transformers has no plan by which model type "
            f"{config.model_type!r} could be split; only 1 will do."
        )
    keys = [style for name, style in plan.items() if name.endswith(KEY_PROJECTIONS)]
    if SPLIT not in keys:
        return int(heads["K/V"])
    for kind, number in heads.items():
        if number % num_ranks:
            raise UnsupportedModel(
                f"tensor_parallel is {num_ranks}: the model has {number} {kind} heads, which "
                "it must divide."
            )
    return int(heads["K/V"] // num_ranks)
