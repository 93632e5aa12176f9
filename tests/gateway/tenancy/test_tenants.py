"""From a key to a tenant."""

from __future__ import annotations

import hashlib

import pytest

from gateway.config import TenantConfig
from gateway.errors import Unauthenticated
from gateway.tenancy.tenants import OPEN, Tenants


def digest(key: str) -> str:
    return hashlib.sha256(key.encode("latin-1")).hexdigest()


TENANTS = Tenants(
    [
        TenantConfig("acme", (digest("one"), "sha256:" + digest("two")), models=("tiny",)),
        TenantConfig("globex", (digest("schlüssel"),), namespace="shared"),
    ]
)


def test_without_tenants_everybody_is_the_default_tenant() -> None:
    assert Tenants([]).of(None) is OPEN
    assert Tenants([]).of("Bearer anything") is OPEN


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
