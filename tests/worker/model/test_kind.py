from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from worker.model.errors import UnsupportedModel
from worker.model.kind import Kind, kind_of

ONE_LABEL = {"id2label": {"0": "LABEL_0"}}


def folder(tmp_path: Path, architecture: str, model_type: str, **more: Any) -> Path:
    config = {"architectures": [architecture], "model_type": model_type, **more}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize(
    ("architecture", "model_type", "more", "expected"),
    [
        ("LlamaForCausalLM", "llama", {}, Kind("generate")),
        ("GPT2LMHeadModel", "gpt2", {}, Kind("generate")),
        ("Gemma3ForConditionalGeneration", "gemma3", {}, Kind("generate")),
        ("Qwen2ForSequenceClassification", "qwen2", ONE_LABEL, Kind("rerank", labels=1)),
        ("Qwen2ForSequenceClassification", "qwen2", {"num_labels": 1}, Kind("rerank", labels=1)),
        ("BertForSequenceClassification", "bert", ONE_LABEL, Kind("rerank", True, 1)),
        ("XLMRobertaModel", "xlm-roberta", {}, Kind("embed", encodes=True)),
        ("MPNetForMaskedLM", "mpnet", {}, Kind("embed", encodes=True)),
        ("Qwen3Model", "qwen3", {}, Kind("embed")),
    ],
)
def test_files_say_what_a_model_is_for(
    tmp_path: Path, architecture: str, model_type: str, more: dict[str, Any], expected: Kind
) -> None:
    assert kind_of(folder(tmp_path, architecture, model_type, **more), "auto") == expected
    assert kind_of(tmp_path, expected.task) == expected


def test_what_sentence_transformers_saved_embeds(tmp_path: Path) -> None:
    path = folder(tmp_path, "Qwen3ForCausalLM", "qwen3")
    (path / "modules.json").write_text("[]")
    assert kind_of(path, "auto") == Kind("embed")
    assert kind_of(path, "generate") == Kind("generate")
    assert kind_of(path, "rerank") == Kind("rerank")


@pytest.mark.parametrize(
    ("architecture", "model_type", "task", "offered"),
    [
        ("Qwen2ForSequenceClassification", "qwen2", "generate", "it can rerank"),
        ("Qwen2ForSequenceClassification", "qwen2", "embed", "it can rerank"),
        ("BertModel", "bert", "rerank", "it can embed"),
        ("BertModel", "bert", "generate", "it can embed"),
        ("Qwen3Model", "qwen3", "generate", "it can embed"),
        ("Qwen3Model", "qwen3", "rerank", "it can embed"),
    ],
)
def test_an_impossible_pair_names_both(
    tmp_path: Path, architecture: str, model_type: str, task: str, offered: str
) -> None:
    path = folder(tmp_path, architecture, model_type, **ONE_LABEL)
    with pytest.raises(UnsupportedModel, match=f"task is '{task}': {architecture} .*{offered}"):
        kind_of(path, task)
