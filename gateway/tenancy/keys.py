"""API keys: what they look like, and how they are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gateway.tenant_config import KeyConfig

PREFIX = "pnd-"
# 32 bytes: nobody guesses one, so a plain sha256 of it gives nothing away.
_BYTES = 32


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key in the clear, which is told once and kept nowhere, and how it is kept."""

    text: str
    config: KeyConfig


def make_key(
    id_: str | None, created_at: datetime, expires_at: datetime | None, token: Callable[[int], str]
) -> NewKey:
    """A new key. token: so many random bytes as text that fits a URL."""
    text = PREFIX + token(_BYTES)
    return NewKey(text, KeyConfig(digest_of(text), id_, created_at, expires_at))


def bearer_digest(authorization: str | None) -> bytes | None:
    """The sha256 of the key in an Authorization header; None where there is none."""
    scheme, _, key = (authorization or "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        return None
    return hashlib.sha256(key.encode("latin-1")).digest()


def digest_of(key: str) -> str:
    """How a key is kept: 64 hexadecimal digits."""
    return hashlib.sha256(key.encode()).hexdigest()
