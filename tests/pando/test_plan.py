"""`pando plan` tells the worker's own arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pando.command import app

NUMBERS = ("--layers", "8", "--kv-heads", "12", "--head-dim", "64", "--parameters", "1B")


def planned(*words: str) -> Result:
    return CliRunner().invoke(app, ["plan", *words])


def test_sentences_say_what_is_needed_what_fits_and_what_to_set() -> None:
    words = ("--context", "2048", "--concurrency", "32", "--shared-prefix", "1504")
    told = planned(*NUMBERS, *words, "--gpu-memory", "8GiB")
    text = " ".join(told.stdout.split())
    assert told.exit_code == 0
    assert "a token of K/V 24,576 bytes (8 layers x 12 K/V heads x 64)" in text
    assert "1,504 are shared and held once need 443.2 MiB of K/V" in text
    assert "Without sharing it would be 1.5 GiB of K/V" in text
    assert "They fit 8.0 GiB" in text
    found = json.loads(planned(*NUMBERS, *words, "--memory", "8GiB", "--json").stdout)["plan"]
    assert f"max_running_sequences: {found['requests']}, " in text
    assert f"max_cached_tokens: {int(found['tokens'] * 0.8)} " in text


def test_without_a_memory_it_says_what_is_needed_only(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
    window = {"sliding_window": 64, "model_type": "mistral"}
    (tmp_path / "config.json").write_text(json.dumps(config | window))
    told = planned("--model", str(tmp_path), "--parameters", "1000", "--dtype", "float32")
    text = " ".join(told.stdout.split())
    assert "a token of K/V 512 bytes" in text
    assert "2 of 2 layers look back 64 tokens; kept so, K/V would take 512.0 KiB" in text
    assert "fit" not in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--layers", "8"), "parameters is not known"),
        (("--model", "nowhere"), "'nowhere' is neither a folder"),
        ((*NUMBERS, "--memory", "much"), "'much' is no size"),
        ((*NUMBERS, "--context", "0"), "context is 0: from 1 to"),
        (("--parameters", "many"), "parameters is 'many'"),
        ((*NUMBERS, "--memory", "1GiB"), "1.0 GiB can't hold the weights and a page"),
    ],
)
def test_what_cannot_be_planned_is_a_sentence(words: tuple[str, ...], sentence: str) -> None:
    told = planned(*words)
    assert sentence in " ".join(told.output.split())
    assert "Traceback" not in told.output
