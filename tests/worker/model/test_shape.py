"""A folder's sizes are read without weights; what can't be served is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers as t

from tests.worker.model.tiny import GROUPED, LLAMA_SHAPED, OTHERS, save_tiny
from worker.model.errors import UnsupportedModel
from worker.model.loading import LoadOptions, load
from worker.model.shape import read_shape


def test_the_shape_comes_from_the_config_alone(tmp_path: Path) -> None:
    config = LLAMA_SHAPED["qwen3"]()
    save_tiny(config, tmp_path / "full")
    config.save_pretrained(tmp_path / "bare")
    shape = read_shape(tmp_path / "bare")
    assert shape == read_shape(tmp_path / "full")
    assert (shape.architecture, shape.vocab_size) == ("Qwen3ForCausalLM", 199)
    assert (shape.num_layers, shape.num_heads, shape.num_kv_heads) == (3, 4, 2)
    assert (shape.head_dim, shape.max_model_len) == (32, 256)


@pytest.mark.parametrize("family", ["gpt2", "opt", "gpt_neox", "gemma3"])
def test_families_that_name_their_sizes_otherwise(family: str, tmp_path: Path) -> None:
    OTHERS[family]().save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    assert (shape.num_layers, shape.num_heads, shape.max_model_len) == (3, 4, 256)
    assert shape.num_kv_heads == (2 if family == "gemma3" else 4)


@pytest.mark.parametrize(
    "config",
    [
        t.BloomConfig(),
        t.FalconConfig(),
        t.MambaConfig(),
        t.DeepseekV3Config(),
        t.GptOssConfig(),
        t.Qwen3NextConfig(),
        t.BertConfig(),
    ],
    ids=lambda config: str(config.model_type),
)
def test_other_families_are_refused_by_name(config: Any, tmp_path: Path) -> None:
    config.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=f"Model type '{config.model_type}' is not supp"):
        read_shape(tmp_path)
    with pytest.raises(UnsupportedModel, match=f"Model type '{config.model_type}' is not supp"):
        load(tmp_path, LoadOptions(num_pages=4))


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotary_scaling_that_depends_on_the_batch_is_refused(kind: str, tmp_path: Path) -> None:
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    t.LlamaConfig(**GROUPED, rope_parameters=rope).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=f"Rotary scaling '{kind}' is not supported"):
        read_shape(tmp_path)


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonesuch"}))
    with pytest.raises(UnsupportedModel, match=r"config\.json was not understood"):
        read_shape(tmp_path)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"it has no config\.json"):
        read_shape(tmp_path)


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    LLAMA_SHAPED["llama"]().save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(UnsupportedModel, match=r"holds no \*\.safetensors"):
        load(tmp_path, LoadOptions(num_pages=4))


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    config = LLAMA_SHAPED["llama"]()
    config.quantization_config = {"quant_method": "gptq", "bits": 4}
    config.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match="quantised checkpoints are not supported"):
        load(tmp_path, LoadOptions(num_pages=4))


def test_an_unknown_member_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'magic' is none of auto, lowered, modules"):
        load(tmp_path, LoadOptions(num_pages=4, member="magic"))
