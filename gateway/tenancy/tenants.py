"""Who asks, and what they may: from the Authorization header to a tenant.

Keys are held as sha256 digests and compared in constant time. Without tenants the gateway is
open: whoever asks is the one tenant `default`. Policies, limits and weights join `Tenant` later.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.config import TenantConfig
from gateway.errors import Unauthenticated


@dataclass(frozen=True, slots=True)
class Tenant:
    """One customer. namespace: whose cached pages it shares; models None: all of them."""

    id: str
    namespace: bytes
    models: frozenset[str] | None = None

    def may_use(self, model: str) -> bool:
        """Whether the tenant is allowed the model."""
        return self.models is None or model in self.models


OPEN = Tenant(id="default", namespace=b"default")


class Tenants:
    """Finds the tenant of a key. Read-only once built."""

    def __init__(self, tenants: Iterable[TenantConfig]):
        self._by_digest: dict[bytes, Tenant] = {}
        for config in tenants:
            tenant = Tenant(
                id=config.id,
                namespace=(config.namespace or config.id).encode(),
                models=None if config.models is None else frozenset(config.models),
            )
            for key in config.keys:
                self._by_digest[bytes.fromhex(key.removeprefix("sha256:"))] = tenant

    def of(self, authorization: str | None) -> Tenant:
        """The tenant of an Authorization header. Raises Unauthenticated.

        Every digest is compared, found or not, so that time tells nothing of the keys.
        """
        if not self._by_digest:
            return OPEN
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthenticated(
                "You didn't provide an API key. Send it as 'Authorization: Bearer KEY'."
            )
        digest = hashlib.sha256(key.strip().encode("latin-1")).digest()
        found = None
        for held, tenant in self._by_digest.items():
            if hmac.compare_digest(held, digest):
                found = tenant
        if found is None:
            raise Unauthenticated("Incorrect API key provided.")
        return found
