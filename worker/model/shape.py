"""Reads a model folder's config.json: sizes without weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from worker.model.errors import UnsupportedModel
from worker.model.families import require_static_rope, require_supported
from worker.model.interface import ModelShape


def read_config(folder: Path) -> Any:
    """Returns transformers' config of the folder, once it is known to be servable.

    Raises UnsupportedModel. Never touches a network.
    """
    if not (folder / "config.json").is_file():
        raise UnsupportedModel(f"{folder} is not a model folder: it has no config.json.")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        raise UnsupportedModel(f"{folder}: config.json was not understood: {error}") from error
    require_supported(config.model_type)
    require_static_rope(config.get_text_config())
    if getattr(config, "quantization_config", None):
        raise UnsupportedModel(f"{folder}: quantised checkpoints are not supported.")
    return config


def read_shape(folder: Path) -> ModelShape:
    """Returns the sizes of the folder's model from config.json alone.

    Raises UnsupportedModel.
    """
    return shape_of(read_config(folder))


def shape_of(config: Any) -> ModelShape:
    """Returns the sizes that a config describes; no weights are read or made."""
    text = config.get_text_config()
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    num_heads = text.num_attention_heads
    return ModelShape(
        architecture=type(skeleton).__name__,
        vocab_size=text.vocab_size,
        num_layers=text.num_hidden_layers,
        num_heads=num_heads,
        num_kv_heads=getattr(text, "num_key_value_heads", None) or num_heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // num_heads,
        max_model_len=text.max_position_embeddings,
    )
