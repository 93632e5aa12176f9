"""`python -m worker.model.footprint --model NAME_OR_PATH`: what a model takes, without loading it.

Prints one JSON object: `path`, `weights_bytes` (as float32, which is what a CPU computes with) and
`kv_bytes_per_token` (float32; null where the config doesn't tell). Reads file headers only.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
from pathlib import Path

from worker.errors import ModelUnavailable
from worker.model.files import DEFAULT_MODEL, locate
from worker.text.model_configs import read_json

FLOAT32_BYTES = 4


def footprint(path: Path) -> dict[str, str | int | None]:
    """Returns the object that is printed. path: a model folder or a GGUF file."""
    if path.is_dir():
        numbers = sum(safetensors_numbers(file) for file in path.glob("*.safetensors"))
        kv = folder_kv_bytes(path)
    else:
        numbers, kv = gguf_numbers(path)
    return {
        "path": str(path),
        "weights_bytes": numbers * FLOAT32_BYTES,
        "kv_bytes_per_token": kv,
    }


def safetensors_numbers(file: Path) -> int:
    """Returns how many numbers the tensors of one file hold."""
    with file.open("rb") as opened:
        (size,) = struct.unpack("<Q", opened.read(8))
        header = json.loads(opened.read(size))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if "shape" in entry)


def folder_kv_bytes(folder: Path) -> int | None:
    """Returns K and V of one token over all layers, or None where the config doesn't tell."""
    config = read_json(folder / "config.json")
    config = config.get("text_config", config)
    try:
        heads = config.get("num_key_value_heads") or config["num_attention_heads"]
        width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        return int(2 * config["num_hidden_layers"] * heads * width * FLOAT32_BYTES)
    except KeyError:
        return None


def gguf_numbers(file: Path) -> tuple[int, int | None]:
    """Returns how many numbers the tensors hold, and K and V of one token in bytes."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
    except (ValueError, OSError, IndexError) as error:
        raise ModelUnavailable(f"{file} isn't a readable GGUF file: {error}") from error
    kv = sum(
        int(tensor.shape[1]) * FLOAT32_BYTES
        for tensor in reader.tensors
        if tensor.name.endswith(("attn_k.weight", "attn_v.weight"))
    )
    return sum(int(tensor.n_elements) for tensor in reader.tensors), kv or None


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m worker.model.footprint", description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="folder, .gguf file or default name")
    try:
        print(json.dumps(footprint(locate(parser.parse_args().model))))
    except ModelUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
