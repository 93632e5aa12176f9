"""Tiny random models of every supported family, and a driver over pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers as t

from tests.kernels.paging import Part, batch_of, random_tables
from worker.model.interface import Model

LENGTHS = (70, 45, 33)
BASE: Mapping[str, Any] = {
    "vocab_size": 199,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
GROUPED = {**BASE, "num_key_value_heads": 2}
WINDOW = 20
ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}

# What the lowered member takes.
LLAMA_SHAPED: dict[str, Callable[[], Any]] = {
    "llama": lambda: t.LlamaConfig(**GROUPED),
    "llama-tied": lambda: t.LlamaConfig(**GROUPED, tie_word_embeddings=True),
    "llama-biased": lambda: t.LlamaConfig(**GROUPED, attention_bias=True, mlp_bias=True),
    "llama-wide-heads": lambda: t.LlamaConfig(**GROUPED, head_dim=24),
    "llama-rope-llama3": lambda: t.LlamaConfig(**GROUPED, rope_parameters=LLAMA3),
    "llama-rope-yarn": lambda: t.LlamaConfig(**GROUPED, rope_parameters=YARN),
    "llama-rope-linear": lambda: t.LlamaConfig(**GROUPED, rope_parameters=LINEAR),
    "mistral": lambda: t.MistralConfig(**GROUPED, sliding_window=WINDOW),
    "qwen2": lambda: t.Qwen2Config(**GROUPED),
    "qwen2-window": lambda: t.Qwen2Config(
        **GROUPED, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1
    ),
    "qwen3": lambda: t.Qwen3Config(**GROUPED, head_dim=32),
}

OTHERS: dict[str, Callable[[], Any]] = {
    "cohere": lambda: t.CohereConfig(**GROUPED),
    "gemma2": lambda: t.Gemma2Config(
        **GROUPED, head_dim=32, sliding_window=WINDOW, query_pre_attn_scalar=24
    ),
    "gemma3": lambda: t.Gemma3Config(
        text_config=t.Gemma3TextConfig(
            **GROUPED, head_dim=32, sliding_window=WINDOW, layer_types=ALTERNATING
        ),
        vision_config=t.SiglipVisionConfig(
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            image_size=28,
            patch_size=14,
        ),
        mm_tokens_per_image=4,
        image_token_index=1,
        boi_token_index=2,
        eoi_token_index=3,
    ),
    "gemma3_text": lambda: t.Gemma3TextConfig(
        **GROUPED, head_dim=32, sliding_window=WINDOW, layer_types=ALTERNATING
    ),
    "glm4": lambda: t.Glm4Config(**GROUPED, head_dim=16),
    "gpt2": lambda: t.GPT2Config(vocab_size=199, n_embd=64, n_layer=3, n_head=4, n_positions=256),
    "gpt_neox": lambda: t.GPTNeoXConfig(**BASE),
    "granite": lambda: t.GraniteConfig(**GROUPED, attention_multiplier=0.2),
    "mixtral": lambda: t.MixtralConfig(**GROUPED, num_local_experts=4),
    "olmo2": lambda: t.Olmo2Config(**GROUPED),
    "opt": lambda: t.OPTConfig(
        **{**BASE, "ffn_dim": 96, "word_embed_proj_dim": 64, "pad_token_id": 1}
    ),
    "phi": lambda: t.PhiConfig(**GROUPED),
    "phi3": lambda: t.Phi3Config(**GROUPED, sliding_window=WINDOW),
    "qwen3_moe": lambda: t.Qwen3MoeConfig(
        **GROUPED, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    "smollm3": lambda: t.SmolLM3Config(**GROUPED, no_rope_layer_interval=2),
    "starcoder2": lambda: t.Starcoder2Config(**GROUPED, sliding_window=WINDOW),
}


def save_tiny(config: Any, folder: Path) -> Any:
    """Saves a random model of the config and returns its modules, with eager attention."""
    torch.manual_seed(0)
    model = t.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.08)  # far from uniform logits
            else:
                parameter.add_(0.1 * torch.randn(parameter.shape))  # biases are not zero
    model.save_pretrained(folder)
    return model


def tokens() -> list[torch.Tensor]:
    """The test sequences, int64; ids of padding and images are left out."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(5, 199, (n,), generator=generator) for n in LENGTHS]


@torch.no_grad()
def eager_logits(modules: Any) -> list[torch.Tensor]:
    """Plain transformers' logits [length, vocab] of the test sequences."""
    return [modules(input_ids=ids[None], use_cache=False).logits[0] for ids in tokens()]


Step = list[tuple[int, int, int]]  # (sequence, begin, end)
WHOLE: list[Step] = [[(s, 0, n) for s, n in enumerate(LENGTHS)]]
CHUNKED: list[Step] = [
    [(0, 0, 40), (1, 0, 17)],
    [(1, 17, 18), (0, 40, 41), (2, 0, 20)],
    [(0, 41, 70), (2, 20, 28)],
    *[[(2, 28 + i, 29 + i), (1, 18 + i, 19 + i)] for i in range(5)],
    [(1, 23, 45)],
]
ONE_BY_ONE: list[Step] = [
    [(s, position, position + 1) for s, n in enumerate(LENGTHS) if position < n]
    for position in range(max(LENGTHS))
]


def paged_logits(model: Any, schedule: list[Step], seed: int = 0) -> list[torch.Tensor]:
    """The member's logits [length, vocab] of the test sequences, computed by the schedule."""
    driven: Model = model
    pool = model.backend.shape
    model.backend.fill_pages(list(range(pool.num_pages)), float("nan"))
    tables = random_tables(list(LENGTHS), pool, seed)
    found: list[list[torch.Tensor]] = [[] for _ in LENGTHS]
    for step in schedule:
        ids = torch.cat([tokens()[s][b:e] for s, b, e in step])
        positions = torch.cat([torch.arange(b, e) for _, b, e in step])
        batch = batch_of([Part(tables[s], b, e) for s, b, e in step], pool.page_size)
        logits = driven.forward(ids, positions, batch, torch.arange(len(ids)))
        for (s, begin, end), first in zip(step, batch.query_start.tolist(), strict=False):
            found[s].append(logits[first : first + end - begin])
    return [torch.cat(parts) for parts in found]
