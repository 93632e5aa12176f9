"""What settings, model and device together decide before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from worker.config import WorkerConfig
from worker.errors import ModelUnavailable
from worker.memory import PagePlan, free_memory, plan_pages
from worker.model.formats import Formats
from worker.model.interface import ModelShape
from worker.model.memory_plan import Heads, KvFormat, token_bytes
from worker.model.shape import read_config, shape_of
from worker.model.split import kv_heads_of_rank

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
STEP_TOKENS = {"cpu": 256, "cuda": 8192}


@dataclass(frozen=True, slots=True)
class Sizes:
    """What config and model together decide."""

    shape: ModelShape
    pages: PagePlan
    dtype: torch.dtype
    max_model_len: int
    max_step_tokens: int


def decide(config: WorkerConfig, folder: Path) -> Sizes:
    """Returns the sizes that follow from config and model.

    Raises ModelUnavailable, UnsupportedModel.
    """
    check_devices(config)
    described = read_config(folder)
    shape = shape_of(described)
    kv_heads = kv_heads_of_rank(described, config.tensor_parallel)
    dtype = DTYPES[config.dtype] if config.dtype != "auto" else default_dtype(config.device)
    kept = formats_of(config)
    each = token_bytes(
        Heads(shape.num_layers, kv_heads, shape.head_dim),
        KvFormat(dtype.itemsize, kept.eight_bit_kv, kept.sketched_keys),
    )
    pages = plan_pages(
        config.kv_memory_bytes(each, _free_bytes(config)),
        config.page_size,
        each,
    )
    longest = min(config.max_model_len or shape.max_model_len, shape.max_model_len)
    device = config.device.split(":")[0]
    steps = config.max_step_tokens or max(
        STEP_TOKENS.get(device, STEP_TOKENS["cpu"]), config.max_running_sequences
    )
    return Sizes(shape, pages, dtype, min(longest, pages.num_tokens), steps)


def formats_of(config: WorkerConfig) -> Formats:
    """How weights and K/V are kept."""
    return Formats(
        half_weights=config.weight_dtype == "float16",
        eight_bit_kv=config.kv_cache_dtype == "int8",
        sketched_keys=config.dflash != "off",
    )


def check_devices(config: WorkerConfig) -> None:
    """Raises ModelUnavailable where there are not as many devices as ranks."""
    if not config.device.startswith("cuda"):
        return
    found = torch.cuda.device_count()
    if not found:
        raise ModelUnavailable(
            f"device is {config.device!r}: this torch finds no CUDA device here."
        )
    if found < config.tensor_parallel:
        raise ModelUnavailable(
            f"tensor_parallel is {config.tensor_parallel}: at most the CUDA devices here, "
            f"which are {found}."
        )


def _free_bytes(config: WorkerConfig) -> int:
    """Memory that is free for each rank now."""
    if config.device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(config.device))[0])
    return free_memory(Path("/sys/fs/cgroup")) // config.tensor_parallel


def default_dtype(device: str) -> torch.dtype:
    """What `auto` means on a device."""
    return torch.bfloat16 if device.startswith("cuda") else torch.float32
