from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from worker.model.files import packaged_gguf
from worker.model.footprint import footprint


def write_folder(folder: Path, config: Mapping[str, object]) -> Path:
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
            "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
        }
    ).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_folders_weights_count_as_float32(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
    found = footprint(write_folder(tmp_path, config))
    assert found["weights_bytes"] == 7 * 4
    assert found["kv_bytes_per_token"] == 2 * 2 * 4 * 8 * 4


def test_a_config_that_does_not_tell_leaves_kv_open(tmp_path: Path) -> None:
    assert footprint(write_folder(tmp_path, {}))["kv_bytes_per_token"] is None


def test_a_gguf_counts_as_what_it_becomes(smollm2_folder: Path) -> None:
    gguf, folder = footprint(packaged_gguf()), footprint(smollm2_folder)
    assert gguf["weights_bytes"] == folder["weights_bytes"]
    assert gguf["kv_bytes_per_token"] == folder["kv_bytes_per_token"] == 46080
