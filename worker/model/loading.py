"""Loads a model folder: config, then the member that fits, then its weights onto a page pool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

from kernels import KEEPS_EIGHT_BIT, SPARSE_HEADS, Place, make_backend, make_ops
from kernels.interface import AttentionBackend, KVShape
from worker.model.checkpoint import Checkpoint
from worker.model.errors import UnsupportedModel
from worker.model.formats import PLAIN, Formats
from worker.model.heads import VOCABULARY, Bare, Classifier, Head
from worker.model.interface import ModelShape
from worker.model.lowered import LoweredModel
from worker.model.lowering import Target, lower, misfit
from worker.model.modules import ModulesModel
from worker.model.shape import read_config, shape_of
from worker.model.split import distribution, kv_heads_of_rank

MEMBERS = ("auto", "lowered", "modules")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to load a model.

    member: `auto` takes `lowered` where the shape fits, else `modules`. backend: a name that
    kernels.make_backend knows. threads: for our own kernels; torch's are set by the process.
    num_ranks: over how many processes the model is split; this one is a member of their group.
    head: what stands on the last layer. formats: how weights and K/V are kept.
    """

    num_pages: int
    page_size: int = 16
    member: str = "auto"
    backend: str = "auto"
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    threads: int = 1
    num_ranks: int = 1
    head: Head = VOCABULARY
    formats: Formats = PLAIN


def load(folder: Path, options: LoadOptions) -> LoweredModel | ModulesModel:
    """Returns the folder's model with an empty page pool as its `.backend`.

    Raises UnsupportedModel for a model that can't be served, ValueError for a bad option.
    Never touches a network.
    """
    if options.member not in MEMBERS:
        raise ValueError(f"model member {options.member!r} is none of {', '.join(MEMBERS)}")
    config = read_config(folder)
    checkpoint = Checkpoint(folder)
    shape = shape_of(config)
    reason = misfit(config, checkpoint.names, options.head)
    if options.member == "lowered" and reason is not None:
        raise UnsupportedModel(f"{folder} can't be lowered: {reason}.")
    if options.formats.half_weights and (options.member == "modules" or reason is not None):
        why = reason or "member is 'modules'"
        raise UnsupportedModel(f"weight_dtype is 'float16': it takes a lowered model, and {why}.")
    if options.member == "modules" or reason is not None or options.num_ranks > 1:
        return _load_modules(folder, config, shape, options)
    return _load_lowered(config, checkpoint, shape, options)


def _kv_shape(shape: ModelShape, options: LoadOptions, num_kv_heads: int) -> KVShape:
    return KVShape(
        num_layers=shape.num_layers,
        num_pages=options.num_pages,
        page_size=options.page_size,
        num_kv_heads=num_kv_heads,
        head_dim=shape.head_dim,
        dtype=options.dtype,
        eight_bit=options.formats.eight_bit_kv,
        sketched=options.formats.sketched_keys,
    )


def _load_lowered(
    config: Any, checkpoint: Checkpoint, shape: ModelShape, options: LoadOptions
) -> LoweredModel:
    place = Place(options.device, options.threads)
    backend = make_backend(options.backend, _kv_shape(shape, options, shape.num_kv_heads), place)
    _check_formats(backend, shape)
    ops = make_ops(place, options.dtype, options.formats.half_weights)
    return lower(config, checkpoint, shape, Target(ops, backend, options.device), options.head)


def _load_modules(
    folder: Path, config: Any, shape: ModelShape, options: LoadOptions
) -> ModulesModel:
    place = Place(options.device, options.threads)
    num_kv_heads = kv_heads_of_rank(config, options.num_ranks)
    modules = _auto(options.head).from_pretrained(
        folder,
        config=config,
        dtype=options.dtype,
        attn_implementation="eager",
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        distributed_config=distribution(options.num_ranks),
    )
    if options.num_ranks == 1:  # else transformers has put each shard where it belongs
        modules = modules.to(options.device)
    backend = make_backend(options.backend, _kv_shape(shape, options, num_kv_heads), place)
    _check_formats(backend, shape)
    return ModulesModel(modules, shape, backend, place, options.head)


def _check_formats(backend: AttentionBackend, shape: ModelShape) -> None:
    """Raises ValueError where pages would take more than counted, or no part could be read."""
    if backend.shape.eight_bit and backend.name not in KEEPS_EIGHT_BIT:
        raise ValueError(
            f"kv_cache_dtype is 'int8': attention {backend.name!r} keeps no eight bits; "
            f"{' or '.join(KEEPS_EIGHT_BIT)} does"
        )
    heads = shape.num_heads // shape.num_kv_heads
    most = SPARSE_HEADS.get(backend.name, heads)
    if backend.shape.sketched and heads > most:
        raise ValueError(
            f"dflash: the model has {heads} query heads for a K/V head, attention "
            f"{backend.name!r} reads parts of a context for {most} at most; only off will do"
        )


def _auto(head: Head) -> Any:
    """The class of transformers' that loads a model with this head."""
    if isinstance(head, Classifier):
        return AutoModelForSequenceClassification
    return AutoModel if isinstance(head, Bare) else AutoModelForCausalLM
