"""A folder's tokenizer, read once by each process of tests: reading takes half a second or more."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from worker.text.tokenizer import Tokenizer


@cache
def tokenizer_of(folder: Path) -> Tokenizer:
    """It never changes, and neither may the folder."""
    return Tokenizer.load(folder)
