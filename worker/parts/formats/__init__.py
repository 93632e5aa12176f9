"""Ways to write calls, and which of them a model knows. Add a member here, and its marks."""

from __future__ import annotations

from worker.parts.formats.hermes import HERMES
from worker.parts.formats.interface import CallFormat
from worker.parts.formats.llama3 import LLAMA3
from worker.parts.formats.mistral import MISTRAL, MISTRAL_BARE

# The first one whose marks a template has; a later one's may stand in an earlier one's text.
FORMATS = (MISTRAL_BARE, MISTRAL, LLAMA3, HERMES)
BY_NAME = {one.name: one for one in FORMATS}
# What every model can be told of in plain words.
TOLD = HERMES


def format_of(template: str) -> CallFormat:
    """Returns the format of a chat template's source."""
    found = (one for one in FORMATS if any(mark in template for mark in one.marks))
    return next(found, TOLD)


__all__ = ["BY_NAME", "FORMATS", "TOLD", "CallFormat", "format_of"]
