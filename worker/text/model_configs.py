"""The JSON files beside a tokenizer.json, as far as the text side asks them. No torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


class ModelConfigs:
    """The three JSON files beside a tokenizer.json, each absent or partial in some models."""

    def __init__(
        self,
        config: Mapping[str, Any],
        generation: Mapping[str, Any],
        tokenizer: Mapping[str, Any],
    ) -> None:
        self._config = config.get("text_config", config)
        self._generation = generation
        self._tokenizer = tokenizer
        self.vocab_size = int(self._config.get("vocab_size") or 0)

    @classmethod
    def read(cls, folder: Path) -> ModelConfigs:
        """Returns what the folder has; a file that isn't there is empty."""
        names = ("config.json", "generation_config.json", "tokenizer_config.json")
        return cls(*(read_json(folder / name) for name in names))

    def eos_ids(self, token_to_id: Callable[[str], int | None]) -> Iterable[int]:
        """Yields every end-of-sequence id that any of the files names."""
        for source in (self._generation, self._config):
            value = source.get("eos_token_id")
            yield from value if isinstance(value, list) else [] if value is None else [value]
        token = token_text(self._tokenizer.get("eos_token"))
        found = token_to_id(token) if token is not None else None
        if found is not None:
            yield found


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in the file, or an empty one where there is no file."""
    if not path.is_file():
        return {}
    value = json.loads(path.read_text("utf-8"))
    return value if isinstance(value, dict) else {}


def token_text(value: object) -> str | None:
    """Returns the text of a tokenizer_config's token, which is a string or an object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
