"""From a key to a tenant."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pytest

from gateway.errors import TenantsUnknown, Unauthenticated
from gateway.tenancy.tenants import OPEN, Entry, Roster, Tenant, Tenants
from gateway.tenant_config import KeyConfig, TenantConfig, TenantQuota

EXPIRY = datetime(2026, 1, 31, 12, tzinfo=UTC)


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("latin-1")).digest()


ACME = Tenant.of(TenantConfig("acme", models=("tiny",)))
GLOBEX = Tenant.of(TenantConfig("globex", namespace="shared"))
ROSTER = Roster(
    {
        digest("one"): Entry(ACME),
        digest("two"): Entry(ACME, EXPIRY.timestamp()),
        digest("schlüssel"): Entry(GLOBEX),
    }
)
TENANTS = Tenants(ROSTER, wall_clock=lambda: EXPIRY.timestamp() - 1)


def test_without_any_source_everybody_is_the_default_tenant() -> None:
    tenants = Tenants(Roster(open=True))
    assert tenants.of(None) is OPEN
    assert tenants.of("Bearer anything") is OPEN


@pytest.mark.parametrize("key", ["one", "two"])
def test_every_key_of_a_tenant_finds_it(key: str) -> None:
    tenant = TENANTS.of(f"Bearer {key}")
    assert (tenant.id, tenant.namespace) == ("acme", b"acme")
    assert tenant.may_use("tiny")
    assert not tenant.may_use("huge")


def test_a_tenant_may_have_a_namespace_of_another_name_and_all_models() -> None:
    tenant = TENANTS.of("bearer schlüssel")
    assert (tenant.id, tenant.namespace) == ("globex", b"shared")
    assert tenant.may_use("huge")


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic one", "Bearer three", "one"]
)
def test_whoever_has_no_key_is_refused(header: str | None) -> None:
    with pytest.raises(Unauthenticated):
        TENANTS.of(header)


def test_an_expired_key_is_refused_with_its_end() -> None:
    late = Tenants(ROSTER, wall_clock=EXPIRY.timestamp)
    assert late.of("Bearer one") is ACME
    with pytest.raises(Unauthenticated, match="expired at 2026-01-31T12:00:00Z") as caught:
        late.of("Bearer two")
    assert caught.value.code == "expired_api_key"


def test_an_unknown_key_is_nobodys_only_when_every_source_was_read() -> None:
    tenants = Tenants(Roster(ROSTER.entries, complete=False))
    assert tenants.of("Bearer one") is ACME
    with pytest.raises(TenantsUnknown):
        tenants.of("Bearer three")
    with pytest.raises(Unauthenticated):
        tenants.of(None)


def test_a_tenant_carries_what_is_configured() -> None:
    quota = TenantQuota(60, 10_000, 4, max_queued=8)
    tenant = Tenant.of(TenantConfig("a", weight=2.5, priority="high", quota=quota, debug=True))
    limits = tenant.limits
    assert (limits.requests, limits.tokens, limits.concurrency) == (60, 10_000, 4)
    assert (tenant.weight, tenant.rank, tenant.max_queued, tenant.debug) == (2.5, 0, 8, True)
    ranks = [Tenant.of(TenantConfig("a", priority=p)).rank for p in ("high", "normal", "low")]
    assert ranks == [0, 1, 2]


def test_a_keys_name_is_its_own_or_its_digests() -> None:
    config = KeyConfig("sha256:" + "ab" * 32)
    assert config.name == "abababababab"
    assert config.digest == "ab" * 32
    assert KeyConfig("ab" * 32, "ci").name == "ci"
