"""The `flash` attention backend: vLLM's FlashAttention over our pages, on CUDA.

Two packages hold the function, and the first one that is found and can run serves:

    vllm_flash_attn        on its own: FlashAttention 2, but 2.6.2 wants torch 2.4.0
    vllm.vllm_flash_attn   in vLLM's wheel: FlashAttention 2, and 3 on Hopper

Neither is a dependency. Not yet run on a GPU: what is checked is what the packages are given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import torch

from kernels.interface import AttentionBatch, AttentionParams, KVShape

STANDALONE, IN_VLLM = "vllm_flash_attn", "vllm.vllm_flash_attn"
CACHE_OPERATIONS = "vllm._custom_ops"
DTYPES = (torch.bfloat16, torch.float16)
# Both packages' kernels refuse other pages; upstream flash-attn's wants 256, and isn't used.
PAGE_MULTIPLE = 16
HEAD_MULTIPLE, MAX_HEAD_DIM = 8, 256
VERSIONS = (3, 2)  # the newer one where the device can run it


class Flash(Protocol):
    """A package, as the backend sees it.

    keys, values: one layer's pages, [num_pages, page_size, num_kv_heads, head_dim].
    """

    @property
    def page_multiple(self) -> int:
        """What the size of its pages has to be a multiple of."""

    def attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        batch: AttentionBatch,
        params: AttentionParams,
    ) -> torch.Tensor:
        """Returns causal attention [T, num_heads, head_dim] of query over the pages."""

    def write(
        self,
        new: tuple[torch.Tensor, torch.Tensor],
        keys: torch.Tensor,
        values: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:
        """Stores key and value [T, num_kv_heads, head_dim] in the slots."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package's function, called by the names that its signature has.

    version: of FlashAttention, where the function takes one. store: vLLM's own writer, if it has
    one; else torch writes. unit: the scale 1 that the writer wants.
    """

    origin: str
    function: Callable[..., Any]
    version: int | None
    store: Callable[..., Any] | None
    unit: torch.Tensor
    page_multiple: int = PAGE_MULTIPLE

    def attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        batch: AttentionBatch,
        params: AttentionParams,
    ) -> torch.Tensor:
        """Returns causal attention [T, num_heads, head_dim] of query over the pages."""
        window = params.sliding_window
        named: dict[str, Any] = {
            "cu_seqlens_q": batch.query_start,
            "max_seqlen_q": batch.max_query_len,
            "max_seqlen_k": batch.max_context_len,
            "softmax_scale": params.scale,
            "causal": True,
            "window_size": [-1, -1] if window is None else [window - 1, 0],
            "softcap": params.softcap or 0.0,
            "block_table": batch.block_table,
        }
        if self.version is None:  # the older form wants the lengths summed up
            summed = batch.context_len.cumsum(0, dtype=torch.int32)
            named["cu_seqlens_k"] = torch.nn.functional.pad(summed, (1, 0))
        else:
            named |= {"seqused_k": batch.context_len, "fa_version": self.version}
        found: torch.Tensor = self.function(query, keys, values, **named)
        return found

    def write(
        self,
        new: tuple[torch.Tensor, torch.Tensor],
        keys: torch.Tensor,
        values: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:
        """Stores key and value [T, num_kv_heads, head_dim] in the slots."""
        if self.store is not None:
            self.store(*new, keys, values, slots, "auto", self.unit, self.unit)
            return
        for pool, x in zip((keys, values), new, strict=True):
            pool.flatten(0, 1).index_copy_(0, slots, x.to(pool.dtype))


def find_flash(device: str, load: Callable[[str], Any] = import_module) -> Package:
    """Returns the first package that can run here.

    load: imports a module by name. Raises ValueError with what each of them lacks.
    """
    reasons = []
    for origin in (STANDALONE, IN_VLLM):
        try:
            module = load(origin)
            version = _version(module, load)
        except (ImportError, OSError, RuntimeError) as error:
            reasons.append(f"{origin}: {error}")
            continue
        function = module.flash_attn_varlen_func
        store = _store(load) if origin == IN_VLLM else None
        return Package(origin, function, version, store, torch.ones(1, device=device))
    raise ValueError(
        f"attention is 'flash', but no package for it can run here ({'; '.join(reasons)})"
    )


def _version(module: Any, load: Callable[[str], Any]) -> int | None:
    """Which FlashAttention a module will run; None: the one that it has, without being asked.

    Raises ImportError where the device can run none of them.
    """
    if "seqused_k" not in inspect.signature(module.flash_attn_varlen_func).parameters:
        return None
    interface = load(f"{module.__name__}.flash_attn_interface")
    for version in VERSIONS:
        if interface.is_fa_version_supported(version):
            return version
    raise ImportError(interface.fa_version_unsupported_reason(VERSIONS[-1]))


def _store(load: Callable[[str], Any]) -> Callable[..., Any] | None:
    try:
        found: Callable[..., Any] | None = getattr(
            load(CACHE_OPERATIONS), "reshape_and_cache_flash", None
        )
    except (ImportError, OSError, RuntimeError):
        return None
    return found


def check(shape: KVShape, page_multiple: int) -> None:
    """Raises ValueError where pages of that shape can't be attended to, naming what and why."""
    for name, setting in (("eight_bit", "kv_cache_dtype int8"), ("sketched", "dflash")):
        if getattr(shape, name):
            raise ValueError(f"{name} is True ({setting}): attention 'flash' takes False only")
    if shape.dtype not in DTYPES:
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        dtype = str(shape.dtype).removeprefix("torch.")
        raise ValueError(f"dtype is {dtype}: attention 'flash' takes {allowed}")
    if shape.page_size % page_multiple:
        raise ValueError(
            f"page_size is {shape.page_size}: attention 'flash' takes multiples of {page_multiple}"
        )
    if shape.head_dim % HEAD_MULTIPLE or shape.head_dim > MAX_HEAD_DIM:
        raise ValueError(
            f"head_dim is {shape.head_dim}: attention 'flash' takes multiples of {HEAD_MULTIPLE} "
            f"up to {MAX_HEAD_DIM}"
        )


def make_flash(shape: KVShape, device: str) -> FlashAttention:
    """Returns the backend on a CUDA device. Raises ValueError where it can't run."""
    if not device.startswith("cuda"):
        raise ValueError(f"device is {device!r}: attention 'flash' takes cuda")
    return FlashAttention(shape, device, find_flash(device))


class FlashAttention:
    """AttentionBackend over a package. Layout: [layers, pages, page_size, kv_heads, head_dim].

    Its kernels choose their splits by the batch, so a row's bits may depend on its mates. They
    read sizes from tensors, so a captured step can be run again.
    """

    name = "flash"
    bitwise = False
    capturable = True

    def __init__(self, shape: KVShape, device: str, flash: Flash) -> None:
        check(shape, flash.page_multiple)
        self.shape = shape
        self._flash = flash
        pages = (shape.num_layers, shape.num_pages, shape.page_size)
        size = (*pages, shape.num_kv_heads, shape.head_dim)
        self._keys = torch.zeros(size, dtype=shape.dtype, device=device)
        self._values = torch.zeros(size, dtype=shape.dtype, device=device)

    def write(
        self, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch
    ) -> None:
        """Stores key and value [T, num_kv_heads, head_dim] in the batch's slots."""
        pages = self._keys[layer], self._values[layer]
        self._flash.write((key, value), *pages, batch.slot_mapping)

    def attend(
        self, layer: int, query: torch.Tensor, batch: AttentionBatch, params: AttentionParams
    ) -> torch.Tensor:
        """Returns causal attention [T, num_heads, head_dim] of query over the pages."""
        return self._flash.attend(query, self._keys[layer], self._values[layer], batch, params)

    def copy_pages(self, source: list[int], target: list[int]) -> None:
        """Copies whole pages, all layers, K and V: target[i] becomes equal to source[i]."""
        for pool in (self._keys, self._values):
            pool[:, target] = pool[:, source]

    def fill_pages(self, pages: list[int], value: float) -> None:
        """Sets every element of the pages (tests poison freed pages with NaN)."""
        for pool in (self._keys, self._values):
            pool[:, pages] = value
