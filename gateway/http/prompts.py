"""Plain prompts in the four forms that OpenAI has: a text, texts, token ids, lists of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated, cast

from msgspec import Meta

from gateway.errors import InvalidRequest
from gateway.http.decoding import invalid
from gateway.request import TextPrompt, TokenPrompt

TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Prompts = str | list[str | TokenId | list[TokenId]]


def check_prompts(path: str, prompts: Prompts, most: int, most_ids: int) -> None:
    """Refuse prompts of several kinds, or too many of them. Raises InvalidRequest."""
    if isinstance(prompts, str):
        return
    if len({type(element) for element in prompts}) != 1:
        raise invalid(path, "expected strings, token ids, or lists of token ids")
    if not isinstance(prompts[0], int) and len(prompts) > most:
        raise invalid(path, f"at most {most} prompts are allowed")
    if sum(map(_num_ids, prompts)) > most_ids:
        raise invalid(path, f"at most {most_ids} token ids are allowed")


def prompts_of(path: str, prompts: Prompts) -> list[TextPrompt | TokenPrompt]:
    """The prompts one by one, whatever form they came in. Raises InvalidRequest."""
    if isinstance(prompts, str):
        return [TextPrompt(prompts)]
    if all(isinstance(element, int) for element in prompts):
        return [TokenPrompt(packed(path, prompts))]
    return [
        TextPrompt(element)
        if isinstance(element, str)
        else TokenPrompt(packed(f"{path}[{position}]", cast(list[int], element)))
        for position, element in enumerate(prompts)
    ]


def packed(path: str, ids: Sequence[object]) -> bytes:
    """Ids as they travel. Raises InvalidRequest where there is none."""
    if not ids:
        raise InvalidRequest(f"Invalid value for '{path}': expected at least one id.", param=path)
    return struct.pack(f"<{len(ids)}i", *ids)


def _num_ids(element: str | int | list[int]) -> int:
    return len(element) if isinstance(element, list) else isinstance(element, int)
