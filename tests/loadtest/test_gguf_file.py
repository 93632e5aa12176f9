"""A folder that became a GGUF file means the same model to another reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGUFReader
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from loadtest.errors import LoadTestError
from loadtest.peers.gguf_file import paired, write_gguf

VOCABULARY = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    path = tmp_path / "model"
    LlamaForCausalLM(config).save_pretrained(path)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*letters, "ab", "abc"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b"), ("ab", "c")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def field(reader: Any, name: str) -> Any:
    return reader.get_field(name).contents()


def test_another_reader_computes_the_same_logits(folder: Path) -> None:
    target = folder / "model.gguf"
    write_gguf(folder, target)
    ids = torch.arange(3, 40)[None]
    logits = []
    for more in ({}, {"gguf_file": target.name}):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **more)
        with torch.no_grad():
            logits.append(model.eval()(ids).logits)
    torch.testing.assert_close(*logits, rtol=0, atol=1e-6)


def test_tokens_keep_their_numbers_and_kinds(folder: Path) -> None:
    target = folder / "model.gguf"
    write_gguf(folder, target)
    reader = GGUFReader(target)
    tokens, types = (field(reader, f"tokenizer.ggml.{name}") for name in ("tokens", "token_type"))
    assert len(tokens) == len(types) == VOCABULARY
    assert (tokens[257], types[257]) == ("abc", 1)
    assert (tokens[258], types[258]) == ("<|end|>", 3)
    assert (tokens[299], types[299]) == ("[PAD299]", 4)
    assert field(reader, "tokenizer.ggml.merges") == ["a b", "ab c"]
    assert field(reader, "tokenizer.ggml.pre") == "gpt-2"
    assert field(reader, "tokenizer.ggml.eos_token_id") == 2


def test_weights_are_kept_in_float32(folder: Path) -> None:
    target = folder / "model.gguf"
    write_gguf(folder, target)
    tensors = {tensor.name: tensor for tensor in GGUFReader(target).tensors}
    assert {tensor.tensor_type.name for tensor in tensors.values()} == {"F32"}
    assert "output.weight" not in tensors  # tied: the embedding serves for both
    assert list(tensors["blk.1.attn_k.weight"].shape) == [48, 16]


def test_rows_that_rope_pairs_come_to_stand_side_by_side() -> None:
    rows = torch.arange(8.0)[:, None]  # two heads of four: (0, 2), (1, 3) | (4, 6), (5, 7)
    assert paired(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_what_llama_cpp_would_read_wrongly_is_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    for key, value in (
        ("model_type", "qwen2"),
        ("rope_parameters", {"rope_type": "yarn", "rope_theta": 1.0}),
    ):
        (folder / "config.json").write_text(json.dumps(config | {key: value}))
        with pytest.raises(LoadTestError, match=r"qwen2|yarn"):
            write_gguf(folder, folder / "model.gguf")
