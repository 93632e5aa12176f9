"""What a model takes is what its config says, and what the kernels really keep."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.interface import KVShape
from worker.model.files import packaged_gguf
from worker.model.footprint import described
from worker.model.memory_plan import (
    BadPlan,
    Heads,
    KvFormat,
    Wanted,
    heads_of,
    needed_bytes,
    parameters_of,
    plan,
    token_bytes,
)

GIB = 1024**3
BF16 = KvFormat(2)
LLAMA3 = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
QWEN25 = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "sliding_window": 131072,
    "max_window_layers": 28,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
}
MISTRAL = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
GEMMA2 = {
    "model_type": "gemma2",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_hidden_layers": 26,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
    "vocab_size": 256000,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("config", "each", "windows", "parameters"),
    [
        (LLAMA3, 131_072, 0, 8_030_261_248),
        (QWEN25, 57_344, 0, 7_615_616_512),
        (MISTRAL, 131_072, 32, 7_241_732_096),
        (GEMMA2, 2 * 26 * 4 * 256 * 2, 13, 2_614_341_888),
        ({"model_type": "x", "text_config": LLAMA3}, 131_072, 0, 8_030_261_248),
    ],
)
def test_known_models(config: dict[str, Any], each: int, windows: int, parameters: int) -> None:
    heads = heads_of(config)
    assert heads is not None
    assert token_bytes(heads, BF16) == each
    assert len(heads.windows) == windows
    assert parameters_of(config) == pytest.approx(parameters, rel=0.001)


def test_layers_are_told_apart_by_their_types() -> None:
    types = ["sliding_attention", "full_attention"] * 13
    heads = heads_of({**GEMMA2, "model_type": "y", "layer_types": types})
    assert heads is not None
    assert heads.windows == (4096,) * 13
    each = 4 * 256 * 2 * 2
    assert needed_bytes(heads, BF16, 8192) == each * (13 * 8192 + 13 * 4096)


def test_the_worked_example_of_eight_layers() -> None:
    """8 layers of 12 heads, 64 wide, in two bytes: 24,576 bytes; 2048 tokens for each of 32."""
    wanted = Wanted(1, 8, 12, 64, context=2048, concurrency=32)
    found = plan(wanted)
    assert found.bytes_per_token == 24_576
    assert found.needed_kv_bytes == 24_576 * 2048 * 32 == 1_610_612_736


def test_a_shared_beginning_is_held_once() -> None:
    wanted = Wanted(10**9, 8, 12, 64, 8 * GIB, context=2048, concurrency=32, shared=1504)
    found = plan(wanted)
    assert found.needed_tokens == 1504 + 32 * 544
    assert found.unshared_kv_bytes == 24_576 * 2048 * 32
    room = int(8 * GIB * 0.9) - 2 * 10**9
    assert found.tokens == room // (24_576 * 16) * 16
    assert found.requests == (found.tokens - 1504) // 544
    assert found.unshared_requests == found.tokens // 2048 < found.requests
    assert found.kv_memory <= room < found.kv_memory + 24_576 * 16
    assert found.max_cached_tokens == int(found.tokens * 0.8)
    assert found.fits


def test_the_memory_that_is_needed_fits_and_a_page_less_does_not() -> None:
    wanted = Wanted(10**9, 8, 12, 64, context=2048, concurrency=32)
    needed = plan(wanted).needed_bytes
    assert plan(_with(wanted, memory=needed)).fits
    assert not plan(_with(wanted, memory=needed - 24_576 * 16 * 2)).fits
    nothing = plan(_with(wanted, memory=10**9))
    assert (nothing.fits, nothing.tokens, nothing.requests) == (False, 0, 0)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 300), st.booleans(), st.booleans())
def test_a_token_takes_what_the_kernels_keep(
    layers: int, heads: int, width: int, eight_bit: bool, sketched: bool
) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        shape = KVShape(layers, 1, 16, heads, width, dtype, eight_bit, sketched)
        kept = KvFormat(dtype.itemsize, eight_bit, sketched)
        assert token_bytes(Heads(layers, heads, width), kept) == shape.bytes_per_token


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"layers": 0}, "layers is 0: from 1 to"),
        ({"memory": 0}, "memory is 0: from 1 to"),
        ({"shared": 4096}, "shared_prefix is 4096: from 0 to context - 1, which is 4095"),
        ({"dtype": "fp8"}, "dtype is 'fp8': one of float32, bfloat16, float16"),
        ({"kv_cache_dtype": "int4"}, "kv_cache_dtype is 'int4': one of auto, int8"),
    ],
)
def test_a_wrong_value_is_named_with_its_range(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadPlan, match=sentence):
        plan(_with(Wanted(1, 1, 1, 1), **change))


def test_a_folder_without_weights_is_enough(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA3))
    found = described(str(tmp_path))
    assert (found["layers"], found["kv_heads"], found["head_dim"]) == (32, 8, 128)
    assert found["parameters"] == pytest.approx(8_030_261_248, rel=0.001)


def test_a_gguf_file_says_the_same_as_its_folder(smollm2_folder: Path) -> None:
    file, folder = described(str(packaged_gguf())), described(str(smollm2_folder))
    assert file == folder
    assert (file["layers"], file["kv_heads"], file["head_dim"]) == (30, 3, 64)


def test_the_program_needs_no_torch_and_tells_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit(9)")
    words = ["--layers", "8", "--kv-heads", "12", "--head-dim", "64"]
    command = [sys.executable, "-m", "worker.model.planner", *words]
    environment = {"PYTHONPATH": str(tmp_path)}
    found = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert found.returncode == 1
    assert "parameters is not known" in found.stderr
    command += ["--parameters", "1000"]
    found = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert json.loads(found.stdout)["plan"]["bytes_per_token"] == 24_576


def _with(wanted: Wanted, **change: Any) -> Wanted:
    import msgspec

    return msgspec.structs.replace(wanted, **change)
