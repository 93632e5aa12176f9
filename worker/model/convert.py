"""Turns a GGUF file into a Hugging Face folder: float32 safetensors and a repaired tokenizer.

Costs about 20 CPU seconds and 1.1 GB for 135 M parameters, where the finished folder loads in
2.4 s, memory-mapped; so it's done once, by `files`. Imports torch and transformers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from worker.errors import ModelUnavailable
from worker.model import gguf_tokenizer

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def convert(gguf: Path, folder: Path) -> None:
    """Writes config, weights, generation config and tokenizer of `gguf` into `folder`.

    The folder must exist. Raises ModelUnavailable where transformers can't read the file.
    """
    os.environ.update(OFFLINE)
    metadata = read_metadata(gguf)
    try:
        _write_weights(gguf, folder)
        _write_tokenizer(gguf, folder, metadata)
    except (ValueError, KeyError, NotImplementedError, ImportError, AttributeError) as error:
        raise ModelUnavailable(f"{gguf} can't be converted: {error}") from error


def read_metadata(gguf: Path) -> dict[str, Any]:
    """Returns the file's scalar metadata by key; arrays (the vocabulary) are left out."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(gguf)
    except (ValueError, OSError, IndexError) as error:
        raise ModelUnavailable(f"{gguf} isn't a readable GGUF file: {error}") from error
    array = 9
    return {
        key: field.contents()
        for key, field in reader.fields.items()
        if field.types and int(field.types[0]) != array
    }


def _write_weights(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        local_files_only=True,
        trust_remote_code=False,
    )
    # save_pretrained refuses a model that still claims to be quantised.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):
        weights.chmod(0o644)


def _write_tokenizer(gguf: Path, folder: Path, metadata: dict[str, Any]) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, local_files_only=True, trust_remote_code=False
    )
    gguf_tokenizer.repair(
        tokenizer.backend_tokenizer,
        kind=metadata.get("tokenizer.ggml.model", ""),
        pre=metadata.get("tokenizer.ggml.pre"),
        add_space_prefix=bool(metadata.get("tokenizer.ggml.add_space_prefix", True)),
    )
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": _context_length(metadata),
        "clean_up_tokenization_spaces": False,
        **{name: str(token) for name, token in tokenizer.special_tokens_map.items()},
    }
    if template := metadata.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), "utf-8")


def _context_length(metadata: dict[str, Any]) -> int | None:
    value = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    return int(value) if value is not None else None
