"""The name of a request's static prefix: what sends equal beginnings to one worker. Pure.

Chat: the tools and the leading system and developer messages. Where there are none, the first
message, so that a conversation still stays where it began. Completions: the leading part of the
prompt. An override (`X-Pando-Prefix`, `X-Pando-Document`, `prompt_cache_key`) replaces the content
in the key; the boundary always names the content itself, since the worker's cache holds that.

    messages   [0: system] [1: developer] [2: user] [3: assistant] ...
               [0 ------------------- 2)   static prefix, boundary.num_messages = 2

Model and tenant namespace are part of every digest: tenants never share one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

import msgspec

from gateway.request import Boundary

PrefixKey = NewType("PrefixKey", bytes)

_LEADING_ROLES = ("system", "developer")
_canonical = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Scope:
    """Within what a prefix can be shared."""

    model: str
    namespace: bytes


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the client says of its prefix, strongest first; None: nothing."""

    prefix: str | None = None
    document: str | None = None
    cache_key: str | None = None


@dataclass(frozen=True, slots=True)
class StaticPrefix:
    """The routing key, and the position in the messages that it stands for, where it has one."""

    key: PrefixKey
    boundary: Boundary | None = None


def chat_prefix(
    scope: Scope,
    messages: Sequence[Mapping[str, object]],
    tools: Sequence[Mapping[str, object]] = (),
    template_kwargs: Mapping[str, object] | None = None,
    overrides: Overrides = Overrides(),
) -> StaticPrefix:
    """Name what the messages begin with. template_kwargs count in the boundary alone."""
    num_messages = _static_length(messages, tools)
    content = _canonical.encode((tools, messages[:num_messages]))
    digest = _digest(scope, "chat", content)
    marked = digest
    if template_kwargs:
        marked = _digest(scope, "chat", content, _canonical.encode(template_kwargs))
    key = _override(scope, overrides) or digest
    return StaticPrefix(PrefixKey(key), Boundary(marked, num_messages))


def text_prefix(scope: Scope, text: str, lead: int, overrides: Overrides) -> StaticPrefix:
    """Name a plain prompt by its first `lead` characters."""
    key = _override(scope, overrides) or _digest(scope, "text", text[:lead].encode())
    return StaticPrefix(PrefixKey(key))


def token_prefix(scope: Scope, token_ids: bytes, lead: int, overrides: Overrides) -> StaticPrefix:
    """Name a prompt of packed token ids by its first `lead` ids."""
    key = _override(scope, overrides) or _digest(scope, "tokens", token_ids[: lead * 4])
    return StaticPrefix(PrefixKey(key))


def _static_length(
    messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]]
) -> int:
    """How many leading messages are static."""
    length = 0
    while length < len(messages) and messages[length].get("role") in _LEADING_ROLES:
        length += 1
    return length if length or tools else min(1, len(messages))


def _override(scope: Scope, overrides: Overrides) -> bytes | None:
    for kind, value in (
        ("prefix", overrides.prefix),
        ("document", overrides.document),
        ("cache_key", overrides.cache_key),
    ):
        if value is not None:
            return _digest(scope, kind, value.encode())
    return None


def _digest(scope: Scope, kind: str, *parts: bytes) -> bytes:
    """Sixteen bytes that two prefixes share only if they are equal; parts keep their borders."""
    state = hashlib.blake2b(digest_size=16)
    for part in (scope.model.encode(), scope.namespace, kind.encode(), *parts):
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()
