"""Writes a Llama's folder (config, safetensors, tokenizer) as one GGUF file in float32.

llama.cpp pairs the dimensions that rope turns as (0, 1), (2, 3), ..., the folder as (0, half),
(1, half + 1), ...; so the rows of each head of q and k change places.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loadtest.errors import LoadTestError

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


def write_gguf(folder: Path, target: Path) -> None:
    """Afterwards target holds the folder's weights, bit for bit. Raises LoadTestError."""
    from gguf import MODEL_ARCH, GGUFWriter, LlamaFileType, get_tensor_name_map

    config = json.loads((folder / "config.json").read_text("utf-8"))
    if config["model_type"] != "llama":
        raise LoadTestError(f"{folder}: model type {config['model_type']!r} is not 'llama'.")
    writer = GGUFWriter(target, "llama")
    writer.add_file_type(LlamaFileType.ALL_F32)
    _add_sizes(writer, config)
    _add_tokenizer(writer, folder, config)
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in _tensors(folder, config):
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: Any, config: dict[str, Any]) -> None:
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        raise LoadTestError(f"rotary scaling {rope['rope_type']!r} is not written to GGUF here.")
    writer.add_rope_freq_base(float(rope.get("rope_theta", 10000.0)))


def _add_tokenizer(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    """A byte-level BPE; prompts come as ids, so the pre-tokenizer's name only has to be known."""
    whole = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    model = whole["model"]
    if model["type"] != "BPE" or (whole["decoder"] or {}).get("type") != "ByteLevel":
        raise LoadTestError(f"{folder}: only a byte-level BPE is written to GGUF here.")
    tokens = [f"[PAD{number}]" for number in range(config["vocab_size"])]
    types = [USER_DEFINED] * len(tokens)
    for text, number in model["vocab"].items():
        tokens[number], types[number] = text, NORMAL
    for added in whole["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(
        "smollm" if "Digits" in json.dumps(whole["pre_tokenizer"]) else "gpt-2"
    )
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(one) for one in model["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def _tensors(folder: Path, config: dict[str, Any]) -> Any:
    """Yields names and float32 arrays, one in memory at a time."""
    import torch
    from safetensors import safe_open

    heads = config["num_attention_heads"]
    rows_of = {"q_proj": heads, "k_proj": config.get("num_key_value_heads") or heads}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys()):
                if name == "lm_head.weight" and config.get("tie_word_embeddings"):
                    continue
                tensor = file.get_tensor(name).to(torch.float32)
                for part, count in rows_of.items():
                    if f".{part}." in name:
                        tensor = paired(tensor, count)
                yield name, tensor.contiguous().numpy()


def paired(weight: Any, num_heads: int) -> Any:
    """Returns [heads * head_dim, ...] with each head's rows 0, half, 1, half + 1, ..."""
    split = weight.reshape(num_heads, 2, -1, *weight.shape[1:])
    return split.transpose(1, 2).reshape(weight.shape)
