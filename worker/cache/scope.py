"""Who shares cached pages with whom, and to whose account they are counted. Typed values only.

    tokens   |<----- public_tokens ----->|<- the rest ->|
    pages    | 0 | 1 | 2 |  3 (straddles)    | 4 | ...
    root     |  public   |  private, behind = digest of pages 0..2

A root names one tree of pages. What lies in front of a private tree is not referred to by page but
by a digest of its tokens, so that either may be given up without the other.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Root:
    """Names a tree of pages. Two are the same only if every field is.

    adapter: identity of the weights, "" for the base model. behind: digest of the tokens in front
    of the tree's first page, b"" where it begins at token 0.
    """

    namespace: bytes = b""
    public: bool = False
    adapter: str = ""
    behind: bytes = b""

    @property
    def salt(self) -> bytes:
        """A digest of fixed length that no other root has: fields can't run into one another."""
        adapter = self.adapter.encode()
        state = hashlib.blake2b(digest_size=16)
        for part in (b"public" if self.public else b"private", self.namespace, adapter):
            state.update(len(part).to_bytes(8, "little") + part)
        state.update(self.behind)
        return state.digest()


@dataclass(frozen=True, slots=True)
class Account:
    """For whom cached pages are counted.

    weight: what it may hold in relation to others. share: the fraction of the pool that it keeps
    while it is active. cap: the fraction of the pool that may lie unreferenced for it.
    """

    name: bytes
    weight: float = 1.0
    share: float = 0.0
    cap: float = 1.0

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise ValueError(f"weight is {self.weight:g}; it must be above 0")
        for name, value in (("share", self.share), ("cap", self.cap)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is {value:g}; it must be from 0 to 1")


# Whose public pages are; also of requests that name no account.
PUBLIC = Account(b"")


@dataclass(frozen=True, slots=True)
class CacheScope:
    """Where a sequence's pages are looked for and stored.

    public_tokens: how many leading tokens of the prompt everybody may share, at most all of them:
    what is generated is never public.
    """

    namespace: bytes = b""
    adapter: str = ""
    account: Account = PUBLIC
    public_tokens: int = 0

    @classmethod
    def of(cls, namespace: bytes) -> CacheScope:
        """Returns a wholly private scope whose account is named by the namespace."""
        return cls(namespace, account=Account(namespace))

    @property
    def public_root(self) -> Root:
        """The tree that everybody shares."""
        return Root(public=True, adapter=self.adapter)

    def private_root(self, behind: bytes = b"") -> Root:
        """Returns the tree of this namespace behind the public tokens of that digest."""
        return Root(self.namespace, adapter=self.adapter, behind=behind)

    def num_public_pages(self, page_size: int) -> int:
        """Whole pages of public tokens; a page that straddles their end is private."""
        return self.public_tokens // page_size


def digest_of(tokens: bytes) -> bytes:
    """Returns what a private root says of the packed tokens in front of it."""
    return hashlib.blake2b(tokens, digest_size=32).digest() if tokens else b""
