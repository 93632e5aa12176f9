"""A model's files bring data and no code, whoever wrote them."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from worker.errors import ModelUnavailable
from worker.model import files
from worker.model.encoder import EncoderOptions, load_encoder
from worker.model.errors import UnsupportedModel
from worker.model.kind import Kind
from worker.model.loading import LoadOptions, load
from worker.model.shape import read_shape

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 64,
}
BERT = {**LLAMA, "architectures": ["BertModel"], "model_type": "bert"}


def write_config(folder: Path, **settings: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A file that is there once a model's own code has run."""
    return tmp_path / "ran"


@pytest.fixture
def foreign_code(tmp_path: Path, trace: Path) -> Callable[..., Path]:
    """Makes a folder whose config names classes of its own, as models with remote code do."""

    def make(**settings: Any) -> Path:
        names = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
        folder = write_config(tmp_path / "model", **settings, auto_map=names)
        (folder / "own.py").write_text(
            f"open({str(trace)!r}, 'w').close()\n"
            "from transformers import LlamaConfig, LlamaForCausalLM\n"
            "class OwnConfig(LlamaConfig): model_type = 'own'\n"
            "class OwnModel(LlamaForCausalLM): pass\n"
        )
        return folder

    return make


@pytest.fixture
def yes(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal at which somebody says yes to whatever is asked."""
    answers = io.StringIO("y\n" * 8)
    monkeypatch.setattr("sys.stdin", answers)
    return answers


def test_code_that_comes_with_a_model_is_neither_run_nor_asked_for(
    foreign_code: Callable[..., Path], yes: io.StringIO, trace: Path
) -> None:
    folder = foreign_code(**LLAMA, model_type="own")
    with pytest.raises(UnsupportedModel, match="was not understood"):
        read_shape(folder)
    encoder = EncoderOptions()
    with pytest.raises(UnsupportedModel, match="was not understood"):
        load_encoder(folder, Kind("embed", encodes=True), encoder)
    assert not trace.exists()
    assert yes.tell() == 0, "nobody is asked"


def test_a_known_model_is_ours_whatever_code_its_folder_has(
    foreign_code: Callable[..., Path], yes: io.StringIO, trace: Path
) -> None:
    assert read_shape(foreign_code(**LLAMA, model_type="llama")).num_layers == 1
    assert not trace.exists()
    assert yes.tell() == 0


class Runs:
    """Pickled so that loading it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self._path), "w")


def test_weights_that_are_a_pickle_are_refused_and_not_loaded(tmp_path: Path, trace: Path) -> None:
    folder = write_config(tmp_path / "model", **LLAMA, model_type="llama")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Runs(trace)))
    with pytest.raises(ModelUnavailable, match=r"lacks \*\.safetensors"):
        files.resolve(str(folder), tmp_path / "cache")
    for member in ("lowered", "modules"):
        with pytest.raises((OSError, UnsupportedModel), match="safetensors"):
            load(folder, LoadOptions(num_pages=4, member=member))
    (folder / "config.json").write_text(json.dumps(BERT))
    with pytest.raises(OSError, match="safetensors"):
        load_encoder(folder, Kind("embed", encodes=True), EncoderOptions())
    assert not trace.exists()
    pickle.loads((folder / "pytorch_model.bin").read_bytes()).close()
    assert trace.exists(), "loading it would have made the file"
