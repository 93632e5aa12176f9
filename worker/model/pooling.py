"""How an embedding model makes one vector of its tokens' vectors, by sentence-transformers' files.

modules.json                 which steps follow the model: pooling, normalisation
1_Pooling/config.json        which tokens count
sentence_bert_config.json    how many tokens it was trained on
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from worker.model.errors import UnsupportedModel
from worker.text.model_configs import read_json

Mode = Literal["mean", "cls", "last"]

_FLAG = "pooling_mode_"
# By the newer files' word, and by the older ones' flag.
_MODES: dict[str, Mode] = {
    "mean": "mean",
    "cls": "cls",
    "lasttoken": "last",
    f"{_FLAG}mean_tokens": "mean",
    f"{_FLAG}cls_token": "cls",
    f"{_FLAG}lasttoken": "last",
}
_STEPS = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True, slots=True)
class Pooling:
    """Which tokens' vectors count, and whether the result has length 1.

    max_tokens: of a text, as the model was trained; None: all that it has positions for.
    """

    mode: Mode
    normalises: bool
    max_tokens: int | None = None


def pooling_of(folder: Path, default: Mode) -> Pooling:
    """Returns the folder's pooling; default: where it says nothing, and then normalised.

    Raises UnsupportedModel for what isn't done here.
    """
    limit = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    max_tokens = int(limit) if limit else None
    if not (folder / "modules.json").is_file():
        return Pooling(default, normalises=True, max_tokens=max_tokens)
    modules: list[dict[str, Any]] = json.loads((folder / "modules.json").read_text("utf-8"))
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    for kind in kinds:
        if kind not in _STEPS:
            raise UnsupportedModel(
                f"{folder.name}: its modules.json has the step {kind!r}; supported are "
                f"{', '.join(_STEPS)}."
            )
    mode = default
    if "Pooling" in kinds:
        mode = _mode(folder / str(modules[kinds.index("Pooling")]["path"]))
    return Pooling(mode, "Normalize" in kinds, max_tokens)


def _mode(folder: Path) -> Mode:
    settings = read_json(folder / "config.json")
    named = settings.get("pooling_mode")
    flags = [name for name, value in settings.items() if name.startswith(_FLAG) and value is True]
    chosen = [str(named)] if named else flags
    if len(chosen) != 1 or chosen[0] not in _MODES:
        raise UnsupportedModel(
            f"{folder}: its pooling is {' and '.join(chosen) or 'not named'}; supported is one of "
            f"{', '.join(_MODES)}."
        )
    return _MODES[chosen[0]]
