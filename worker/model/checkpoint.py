"""Reads safetensors weights, memory-mapped, tensor by tensor."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open

from worker.model.errors import UnsupportedModel

INDEX = "model.safetensors.index.json"
PREFIX = "model."


class Checkpoint:
    """The tensors of a model folder by name; single file or sharded with an index.

    A model that was saved without a head has its names without a prefix; they get it back. Raises
    UnsupportedModel where the folder holds no safetensors.
    """

    def __init__(self, folder: Path) -> None:
        self._files = _files_by_name(folder)
        self._cut = 0
        if "embed_tokens.weight" in self._files:
            self._files = {f"{PREFIX}{name}": path for name, path in self._files.items()}
            self._cut = len(PREFIX)

    @property
    def names(self) -> frozenset[str]:
        """The names of all tensors."""
        return frozenset(self._files)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def get(self, name: str) -> torch.Tensor:
        """Returns one tensor, a view of the mapped file; only what is read becomes resident.

        Each call maps anew, so that dropping the tensor drops the pages read through it.
        """
        with safe_open(self._files[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name[self._cut :])
        return tensor


def _files_by_name(folder: Path) -> dict[str, Path]:
    if (folder / INDEX).is_file():
        shards: dict[str, str] = json.loads((folder / INDEX).read_text())["weight_map"]
        missing = sorted({file for file in shards.values() if not (folder / file).is_file()})
        if missing:
            raise UnsupportedModel(f"{folder}: shards are missing: {', '.join(missing)}.")
        return {name: folder / file for name, file in shards.items()}
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UnsupportedModel(
            f"{folder} holds no *.safetensors; other weight formats are not supported."
        )
    found: dict[str, Path] = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            found.update(dict.fromkeys(file.keys(), path))
    return found
