"""How large the check is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

GPU_MEMBERS = ("triton", "flash", "gather")
CPU_MEMBERS = ("triton", "gather")


@dataclass(frozen=True, slots=True)
class Heads:
    """An attention layer's shape."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A batch that decodes. shared: of the context, what all have in common. budget: for dflash."""

    batch: int
    context: int
    shared: int = 0
    budget: int = 0

    @property
    def what(self) -> str:
        """In words."""
        more = f", {self.shared:,} shared" if self.shared else ""
        more += f", {self.budget:,} read" if self.budget else ""
        return f"decode {self.batch} x {self.context:,}{more}"


@dataclass(frozen=True, slots=True)
class Serving:
    """A model of random weights and what is asked of it.

    config: of a LlamaConfig. asks: what decodes, for so many steps each.
    """

    config: Mapping[str, object]
    asks: tuple[Ask, ...]
    prefill_prompts: int
    prompt_tokens: int
    steps: int


@dataclass(frozen=True, slots=True)
class Scale:
    """All sizes. budget: tokens that a sparse row reads of a long context.

    gemm: side of the square matrices. copy_bytes: of the copy that measures memory.
    """

    device: str
    dtype: torch.dtype
    members: tuple[str, ...]
    heads: Heads
    batch: int
    context: int
    shared: int
    long_batch: int
    long_context: int
    budget: int
    gemm: int
    copy_bytes: int
    min_seconds: float
    serving: Serving
    page_size: int = 16


LLAMA_1B: Mapping[str, object] = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
TINY: Mapping[str, object] = {
    "vocab_size": 199,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}

GPU = Scale(
    device="cuda",
    dtype=torch.bfloat16,
    members=GPU_MEMBERS,
    heads=Heads(32, 8, 128),
    batch=32,
    context=4096,
    shared=3584,
    long_batch=8,
    long_context=32_768,
    budget=2048,
    gemm=8192,
    copy_bytes=1 << 30,
    min_seconds=0.3,
    serving=Serving(
        LLAMA_1B,
        (
            Ask(1, 1024),
            Ask(8, 1024),
            Ask(32, 1024),
            Ask(128, 1024),
            Ask(128, 1024, shared=896),
            Ask(8, 8000),
            Ask(8, 8000, budget=1024),
        ),
        prefill_prompts=8,
        prompt_tokens=1024,
        steps=32,
    ),
)
REHEARSAL = Scale(
    device="cpu",
    dtype=torch.float32,
    members=CPU_MEMBERS,
    heads=Heads(2, 1, 16),
    batch=3,
    context=40,
    shared=32,
    long_batch=1,
    long_context=112,
    budget=80,
    gemm=64,
    copy_bytes=1 << 16,
    min_seconds=0.0,
    serving=Serving(
        TINY,
        (Ask(1, 32), Ask(3, 32), Ask(3, 32, shared=16), Ask(1, 112), Ask(1, 112, budget=80)),
        prefill_prompts=2,
        prompt_tokens=24,
        steps=2,
    ),
)
