"""Amounts of memory as people write and read them."""

from __future__ import annotations

import re

from pando.errors import BadSize

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGT", start=1)}
PATTERN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?)?B?")


def parse_size(text: str) -> int:
    """Returns the bytes that "512MiB", "1.5GB" or "1000" name. Raises BadSize."""
    found = PATTERN.fullmatch(text.strip())
    if found is None:
        raise BadSize(text)
    return int(float(found[1]) * UNITS[found[2] or ""])


def readable(num_bytes: int) -> str:
    """Returns a size in the largest binary unit that keeps it above 1."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
