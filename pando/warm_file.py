"""A file of declared prefixes: YAML, JSON, or a JSON object per line. Pure but for reading it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pando.errors import BadPrefixes


@dataclass(frozen=True, slots=True)
class Declared:
    """One prefix. path: the API's route for it. body: what is asked, but for model and length."""

    name: str
    path: str
    body: Mapping[str, Any]


def read_prefixes(path: Path) -> list[Declared]:
    """The prefixes in their order. Raises BadPrefixes with the place and what is allowed."""
    try:
        text = path.read_text("utf-8")
        found = _parsed(path.suffix.lower(), text)
    except (OSError, ValueError) as error:
        raise BadPrefixes(f"{path}: {error}") from error
    if isinstance(found, dict) and set(found) == {"prefixes"}:
        found = found["prefixes"]
    if not isinstance(found, list) or not found:
        raise BadPrefixes(f"{path}: a list of prefixes is expected, each with messages or prompt.")
    return [_declared(f"{path}: prefix {number}", one) for number, one in enumerate(found, 1)]


def _parsed(suffix: str, text: str) -> Any:
    """What the text says. Raises ValueError."""
    if suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    if suffix not in (".yaml", ".yml"):
        return json.loads(text)
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError("YAML needs the package pyyaml; JSON and JSONL need none") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _declared(place: str, one: Any) -> Declared:
    if not isinstance(one, dict):
        raise BadPrefixes(f"{place} is no object: it must have messages or prompt.")
    has_messages, has_prompt = "messages" in one, "prompt" in one
    if has_messages == has_prompt:
        raise BadPrefixes(f"{place} must have either messages or prompt.")
    for field in ("max_tokens", "stream", "n"):
        if field in one:
            raise BadPrefixes(f"{place} has {field}: one token is asked for, in one piece.")
    path = "/v1/chat/completions" if has_messages else "/v1/completions"
    body = {field: value for field, value in one.items() if field != "name"}
    return Declared(str(one.get("name", place.rpartition(": ")[2])), path, body)
