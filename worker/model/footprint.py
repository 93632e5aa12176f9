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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worker.errors import ModelUnavailable
from worker.model.files import DEFAULT_MODEL, locate
from worker.model.memory_plan import Heads, KvFormat, heads_of, parameters_of, token_bytes
from worker.text.model_configs import read_json

FLOAT32_BYTES = 4
# What a GGUF file calls a config's numbers.
GGUF_NAMES = {
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "hidden_size": "embedding_length",
    "sliding_window": "attention.sliding_window",
}


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
    heads = heads_of(read_json(folder / "config.json"))
    return None if heads is None else token_bytes(heads, KvFormat(FLOAT32_BYTES))


def described(model: str) -> dict[str, Any]:
    """Returns what a plan takes from the model's files: `parameters`, `layers` and so on.

    model: a folder with a config.json (weights are counted where they are, else told from it), a
    .gguf file, or the default name. What isn't told is left out. Raises ModelUnavailable.
    """
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        config = read_json(folder / "config.json")
        numbers = sum(safetensors_numbers(file) for file in folder.glob("*.safetensors"))
        return _told(heads_of(config), numbers or parameters_of(config))
    file = locate(model)
    if file.is_dir():
        raise ModelUnavailable(f"The model folder {file} lacks config.json.")
    return _told(gguf_heads(file), gguf_numbers(file)[0])


def _told(heads: Heads | None, parameters: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if heads is None else asdict(heads)
    return found | ({} if parameters is None else {"parameters": parameters})


def gguf_heads(file: Path) -> Heads | None:
    """Returns what the file's metadata says of its K/V, or None."""
    from worker.model.convert import read_metadata

    found = read_metadata(file)
    front = f"{found.get('general.architecture')}."
    told = {name: found.get(front + key) for name, key in GGUF_NAMES.items()}
    return heads_of({name: one for name, one in told.items() if one is not None})


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
