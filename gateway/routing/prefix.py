"""A prompt as a chain of digests, one per message boundary. Pure.

    start        model, namespace, tools, template variables
    boundary 1   start + message 0                   static prefix: the tools and the leading
    boundary 2   boundary 1 + message 1              system and developer messages, else the
    ...                                              first message
    boundary n   boundary n-1 + message n-1          the end of the prompt

Two prompts share a digest only if they are equal up to there, so a worker's cache is known by the
digests it holds, and what a follow-up shares with its conversation is found without a tokenizer.
Plain prompts have a boundary every `lead` characters or token ids, and one at their end.

The static prefix also has a key, which groups requests and names them on the ring. An override
(`X-Pando-Prefix`, `X-Pando-Document`, `prompt_cache_key`) replaces the content in the key; the
boundaries always name the content itself, since the workers' caches hold that.

Model and tenant namespace begin every chain: tenants never share a digest. Digests are
cryptographic, so that no tenant can forge another's. Where the first messages are declared public
(`public`), the chain begins without a namespace, and it comes in behind them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

import msgspec

from gateway.request import Boundary, Unit

PrefixKey = NewType("PrefixKey", bytes)
Messages = Sequence[Mapping[str, object]]

DIGEST_BYTES = 16
TOKEN_BYTES = 4
_LEADING_ROLES = ("system", "developer")
_ROLES = {role: role for role in (*_LEADING_ROLES, "user", "assistant", "tool")}
_canonical = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Scope:
    """Within what a prefix can be shared. public: by all namespaces."""

    model: str
    namespace: bytes
    public: bool = False


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the client says of its prefix, strongest first; None: nothing. session: of itself."""

    prefix: str | None = None
    document: str | None = None
    cache_key: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """A prompt's boundaries, from its beginning to its end; three sequences of one length.

    digests: everything up to the boundary. places: messages, characters or token ids before it.
    sizes: bytes before it, tools included. static_depth: boundaries of the static prefix, which is
    digests[:static_depth]. key: what groups requests of one static prefix. roles: whose part ends
    at each boundary, of a fixed list.
    """

    key: PrefixKey
    digests: tuple[bytes, ...]
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    unit: Unit
    static_depth: int
    roles: tuple[str, ...] = ()

    @property
    def num_bytes(self) -> int:
        """The whole prompt's."""
        return self.sizes[-1] if self.sizes else 0

    @property
    def static_digest(self) -> bytes:
        """Names the static prefix as it lies in the caches."""
        return self.digests[self.static_depth - 1] if self.digests else b""

    @property
    def next_digest(self) -> bytes | None:
        """Names what a conversation begins with behind the static prefix; None: nothing is."""
        behind = self.digests[self.static_depth : self.static_depth + 1]
        return behind[0] if behind else None

    def bytes_after(self, depth: int) -> int:
        """How much of the prompt lies behind its first `depth` boundaries."""
        return self.num_bytes - self.sizes[depth - 1] if depth else self.num_bytes

    def depths(self, limit: int, known: Container[bytes] = ()) -> list[int]:
        """The boundaries that a worker is asked to name, in order: at most `limit` of them.

        Not those that are known to lie there. The last ones, since conversations go on there, the
        static one, and every 2nd, 4th, 8th... of the others, so that prompts with one beginning
        name the same ones.
        """
        wanted = [d for d, digest in enumerate(self.digests, 1) if digest not in known]
        if len(wanted) <= limit:
            return wanted
        num_last = max(limit // 2, 1)
        chosen, before = set(wanted[-num_last:]), wanted[:-num_last]
        if limit > num_last and self.static_depth in before:
            chosen.add(self.static_depth)
        room, stride = limit - len(chosen), 1
        while len(before) > room:
            stride *= 2
            before = [depth for depth in before if depth % stride == 0]
        return sorted(chosen.union(before))

    def boundaries(self, limit: int, known: Container[bytes] = ()) -> tuple[Boundary, ...]:
        """What a worker is asked to name; nothing of what is known to lie there."""
        return tuple(
            Boundary(self.digests[depth - 1], self.places[depth - 1], self.unit)
            for depth in self.depths(limit, known)
        )


def chat_chain(
    scope: Scope,
    messages: Messages,
    tools: bytes = b"",
    template_kwargs: Mapping[str, object] | None = None,
    overrides: Overrides = Overrides(),
    num_public: int = 0,
) -> Chain:
    """Name a chat. Template variables count in the boundaries and not in the key.

    tools: as the worker is told them, since templates write them in that order. num_public: how
    many of the first messages all namespaces share; only without tools.
    """
    static = _static_length(messages, tools)
    public = Scope(scope.model, b"", public=True)
    begun = public if num_public else scope
    walk = _Walk(begun, b"chat", tools, _canonical.encode(template_kwargs or {}))
    if tools:
        walk.mark(0, len(tools), "tools")
    static_parts = [tools]
    for position, message in enumerate(messages):
        part = _canonical.encode(message)
        if position < static:
            static_parts.append(part)
        if num_public and position == num_public:
            walk.step(scope.namespace)
        walk.step(part)
        walk.mark(position + 1, len(part), _ROLES.get(str(message.get("role")), "other"))
    grouped = public if num_public >= static else scope
    key = _override(scope, overrides) or _digest(grouped, b"chat", *static_parts)
    return walk.chain(key, Unit.MESSAGES, static + bool(tools))


def text_chain(scope: Scope, text: str, lead: int, overrides: Overrides = Overrides()) -> Chain:
    """Name a plain prompt, with a boundary every `lead` characters."""
    walk = _Walk(scope, b"text")
    for start in range(0, len(text), lead):
        part = text[start : start + lead].encode()
        walk.step(part)
        walk.mark(min(start + lead, len(text)), len(part))
    key = _override(scope, overrides) or _digest(scope, b"text", text[:lead].encode())
    return walk.chain(key, Unit.CHARS, 1)


def token_chain(
    scope: Scope, token_ids: bytes, lead: int, overrides: Overrides = Overrides()
) -> Chain:
    """Name a prompt of packed token ids, with a boundary every `lead` ids."""
    walk = _Walk(scope, b"tokens")
    width = lead * TOKEN_BYTES
    for start in range(0, len(token_ids), width):
        part = token_ids[start : start + width]
        walk.step(part)
        walk.mark((start + len(part)) // TOKEN_BYTES, len(part))
    key = _override(scope, overrides) or _digest(scope, b"tokens", token_ids[:width])
    return walk.chain(key, Unit.TOKENS, 1)


class _Walk:
    """One pass over a prompt: every byte is hashed once."""

    def __init__(self, scope: Scope, kind: bytes, *parts: bytes):
        self._state = _begun(scope, kind, *parts)
        self._digests: list[bytes] = []
        self._places: list[int] = []
        self._sizes: list[int] = []
        self._roles: list[str] = []

    def step(self, part: bytes) -> None:
        """The prompt goes on with this part, whose borders count."""
        self._state.update(len(part).to_bytes(8, "little"))
        self._state.update(part)

    def mark(self, place: int, num_bytes: int, role: str = "text") -> None:
        """A boundary lies here, so many bytes after the last one; whose they are."""
        self._roles.append(role)
        self._digests.append(self._state.digest())
        self._places.append(place)
        self._sizes.append(num_bytes + (self._sizes[-1] if self._sizes else 0))

    def chain(self, key: bytes, unit: Unit, static_depth: int) -> Chain:
        """All that was passed."""
        digests = tuple(self._digests)
        places, sizes = tuple(self._places), tuple(self._sizes)
        depth = min(static_depth, len(digests))
        return Chain(PrefixKey(key), digests, places, sizes, unit, depth, tuple(self._roles))


def _static_length(messages: Messages, tools: bytes) -> int:
    """How many leading messages are static."""
    length = 0
    while length < len(messages) and messages[length].get("role") in _LEADING_ROLES:
        length += 1
    return length if length or tools else min(1, len(messages))


def _override(scope: Scope, overrides: Overrides) -> bytes | None:
    for kind, value in (
        (b"prefix", overrides.prefix),
        (b"document", overrides.document),
        (b"cache_key", overrides.cache_key),
    ):
        if value is not None:
            return _digest(scope, kind, value.encode())
    return None


def _digest(scope: Scope, kind: bytes, *parts: bytes) -> bytes:
    """Sixteen bytes that two prefixes share only if they are equal; parts keep their borders."""
    return _begun(scope, kind, *parts).digest()


def _begun(scope: Scope, kind: bytes, *parts: bytes) -> hashlib.blake2b:
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    # No tenant's namespace is empty.
    owner = (b"", b"public") if scope.public else (scope.namespace,)
    for part in (scope.model.encode(), *owner, kind, *parts):
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state
