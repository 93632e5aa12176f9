"""What a model folder can be used for, by its JSON files alone. No torch.

    architecture                    encoder (BERT)      decoder (Llama)
    ...ForSequenceClassification    rerank              rerank
    ...ForCausalLM and its like     -                   generate, rerank (yes or no), embed
    ...Model, or with modules.json  embed               embed

What a file says first is what `auto` takes: a classifier reranks, what sentence-transformers saved
embeds, an encoder embeds, all else generates.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from worker.model.errors import UnsupportedModel
from worker.text.model_configs import read_json

Task = Literal["generate", "rerank", "embed"]

CLASSIFIER = "ForSequenceClassification"
CAUSAL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")

# Encoders that were compared with transformers' own pooling and heads, alone and in a batch.
ENCODERS = frozenset(
    {"bert", "camembert", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta"}
)
# Further ones that are no decoders, so that they are refused by name.
OTHER_ENCODERS = frozenset(
    {"albert", "deberta", "deberta-v2", "eurobert", "modernbert", "new", "nomic_bert", "t5"}
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A model and its task. labels: of a classifier, else 0."""

    task: Task
    encodes: bool = False
    labels: int = 0


def kind_of(folder: Path, wished: str) -> Kind:
    """Returns what the folder's model is used for; wished: a task, or auto.

    Raises UnsupportedModel where it can't be that.
    """
    config = read_json(folder / "config.json")
    architecture = str((config.get("architectures") or ["a model of no named architecture"])[0])
    encodes = _encodes(config)
    labels = _labels(config) if architecture.endswith(CLASSIFIER) else 0
    offered = _offered(architecture, encodes=encodes)
    saved = (folder / "modules.json").is_file()
    task = wished if wished != "auto" else _first(offered, saved=saved)
    if task not in offered:
        raise UnsupportedModel(
            f"task is {wished!r}: {architecture} of {folder.name} can't {task}; it can "
            f"{' or '.join(offered)}."
        )
    if labels > 1:
        raise UnsupportedModel(
            f"task is {task!r}: {architecture} of {folder.name} tells {labels} labels apart; a "
            "reranker has one."
        )
    return Kind(_named(task), encodes, labels)


def _encodes(config: dict[str, Any]) -> bool:
    """Whether it is an encoder. Raises UnsupportedModel for one that was never compared."""
    model_type = str(config.get("model_type", ""))
    if model_type in OTHER_ENCODERS:
        raise UnsupportedModel(
            f"Encoder type {model_type!r} is not supported: it was never compared with "
            f"transformers here. Supported encoders: {', '.join(sorted(ENCODERS))}."
        )
    return model_type in ENCODERS and not config.get("is_decoder")


def _labels(config: dict[str, Any]) -> int:
    """As transformers counts them: two where nothing is said."""
    return len(config.get("id2label") or ()) or int(config.get("num_labels", 2))


def _offered(architecture: str, *, encodes: bool) -> tuple[str, ...]:
    if architecture.endswith(CLASSIFIER):
        return ("rerank",)
    if encodes or not architecture.endswith(CAUSAL):
        return ("embed",) if encodes or architecture.endswith("Model") else ("generate",)
    return ("generate", "rerank", "embed")


def _first(offered: tuple[str, ...], *, saved: bool) -> str:
    return "embed" if saved and "embed" in offered else offered[0]


def _named(task: str) -> Task:
    tasks: dict[str, Task] = {"generate": "generate", "rerank": "rerank", "embed": "embed"}
    return tasks[task]
