"""Prefixes that the operator declares public: every tenant shares what is computed for them. Pure.

A chat whose first messages are exactly those of a declared prefix, and that sets no template
variables, is public up to there. All else of it stays within its tenant's namespace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from gateway.routing.prefix import Messages

_canonical = msgspec.json.Encoder(order="sorted")


class PublicPrefixes:
    """The declared prefixes, each a list of messages."""

    def __init__(self, declared: Iterable[Messages] = ()):
        prefixes = [list(messages) for messages in declared]
        self._digests = {_digest(messages) for messages in prefixes}
        self._lengths = sorted({len(messages) for messages in prefixes}, reverse=True)

    def length_in(self, messages: Messages) -> int:
        """How many of the first messages are public: the longest declared prefix, or 0."""
        for length in self._lengths:
            if length <= len(messages) and _digest(messages[:length]) in self._digests:
                return length
        return 0


NONE_PUBLIC = PublicPrefixes()


def _digest(messages: Messages) -> bytes:
    return hashlib.blake2b(_canonical.encode(messages), digest_size=32).digest()
