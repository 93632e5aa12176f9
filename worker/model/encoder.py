"""An encoder: transformers' modules over one whole text at a time; no K/V, no pages.

Each sequence is computed alone, in a forward of its own, so neither the size of a batch nor the
order in it changes a bit of a score. Padding and attention masks are never needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from worker.model.errors import UnsupportedModel
from worker.model.heads import Bare, Classifier, Values
from worker.model.kind import Kind
from worker.model.pooling import Pooling, pooling_of

# Their positions are counted from behind the padding's id.
PADDED_POSITIONS = frozenset({"camembert", "mpnet", "roberta", "xlm-roberta"})


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """positions: tokens that a text may have at most. trained: as many as it was trained on."""

    architecture: str
    vocab_size: int
    positions: int
    trained: int


def encoder_shape(folder: Path) -> EncoderShape:
    """Returns the sizes of the folder's encoder. Raises UnsupportedModel."""
    config = _config(folder)
    positions = int(config.max_position_embeddings)
    if config.model_type in PADDED_POSITIONS:
        positions -= int(config.pad_token_id) + 1
    trained = pooling_of(folder, "mean").max_tokens or positions
    architecture = str((config.architectures or [type(config).__name__])[0])
    return EncoderShape(architecture, int(config.vocab_size), positions, min(trained, positions))


@dataclass(frozen=True, slots=True)
class EncoderOptions:
    """separator: the id that ends a pair's first text, where types tell texts apart; else None."""

    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    separator: int | None = None


class Encoder:
    """Scores pairs by its classifier, or embeds texts by its pooling."""

    def __init__(self, modules: Any, pooling: Pooling | None, options: EncoderOptions) -> None:
        self._modules = modules.eval()
        self._pooling = pooling
        self._options = options

    @torch.inference_mode()
    def values(self, token_ids: Sequence[int]) -> Values:
        """Returns the score of a pair, or the embedding of a text, of all its ids."""
        ids = torch.tensor([token_ids], dtype=torch.int64, device=self._options.device)
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        separator = self._options.separator
        if separator is not None:
            given["token_type_ids"] = _types(ids, separator)
        output = self._modules(**given)
        if self._pooling is None:
            return Classifier().read(output.logits[0])
        pooled = _pooled(output.last_hidden_state[0].double(), self._pooling)
        return Bare(self._pooling.normalises).read(pooled)


def load_encoder(folder: Path, kind: Kind, options: EncoderOptions) -> Encoder:
    """Returns the folder's encoder. Raises UnsupportedModel. Never touches a network."""
    config = _config(folder)
    auto = AutoModelForSequenceClassification if kind.task == "rerank" else AutoModel
    modules = auto.from_pretrained(
        folder,
        config=config,
        dtype=options.dtype,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
    )
    pooling = pooling_of(folder, "mean") if kind.task == "embed" else None
    if getattr(config, "type_vocab_size", 0) < 2:
        options = replace(options, separator=None)
    return Encoder(modules.to(options.device), pooling, options)


def _config(folder: Path) -> Any:
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        raise UnsupportedModel(f"{folder}: config.json was not understood: {error}") from error
    if getattr(config, "quantization_config", None):
        raise UnsupportedModel(f"{folder}: quantised checkpoints are not supported.")
    return config


def _types(ids: torch.Tensor, separator: int) -> torch.Tensor:
    """0 up to the first separator, 1 behind it. ids: [1, T]."""
    seen = (ids == separator).cumsum(dim=1)
    return ((seen - (ids == separator).long()) > 0).long()


def _pooled(vectors: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """One vector of the tokens' vectors [T, hidden]."""
    if pooling.mode == "mean":
        return vectors.mean(dim=0)
    return vectors[0] if pooling.mode == "cls" else vectors[-1]
