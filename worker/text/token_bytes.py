"""A vocabulary entry's bytes: byte-level BPE, or sentencepiece with or without byte fallback."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from worker.errors import ModelUnavailable

SPACE = "▁"
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def parts(step: dict[str, Any], members: str) -> list[dict[str, Any]]:
    """Returns the members of a step of a tokenizer.json, sequences of sequences flattened."""
    if step.get("type") == "Sequence":
        return [part for inner in step[members] for part in parts(inner, members)]
    return [step] if step else []


def byte_converter(definition: dict[str, Any]) -> Callable[[str], bytes]:
    """Returns the function from a vocabulary entry to its bytes."""
    decoders = parts(definition.get("decoder") or {}, "decoders")
    kinds = {part["type"] for part in decoders}
    if "ByteLevel" in kinds:
        return _from_byte_level
    replaces = any(
        part["type"] == "Replace" and part.get("pattern") == {"String": SPACE} for part in decoders
    )
    if "Metaspace" in kinds or replaces:
        return _from_sentencepiece if "ByteFallback" in kinds else _from_metaspace
    return _refuse


def _alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes: printable Latin-1 as it is, the rest from U+0100 upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


ALPHABET = _alphabet()


def _from_byte_level(token: str) -> bytes:
    try:
        return bytes(ALPHABET[character] for character in token)
    except KeyError:
        return token.encode()


def _from_metaspace(token: str) -> bytes:
    return token.replace(SPACE, " ").encode()


def _from_sentencepiece(token: str) -> bytes:
    byte = BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else _from_metaspace(token)


def _refuse(token: str) -> bytes:
    raise ModelUnavailable(
        f"This tokenizer's decoder is of a kind that can't be streamed (token {token!r})."
    )
