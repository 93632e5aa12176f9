"""OpenAI's service tiers as our priorities: a client may step back, and not push forward."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from gateway.http.intake import Caller

_LOW, _HIGH = 2, 0


def tier_of(asked: str | None, caller: Caller) -> tuple[Caller, str | None]:
    """Who asks, at the priority of the tier, and the tier that it gets; None: none was named.

    flex: the low class. All others: the tenant's own class, whatever it is.
    """
    if asked is None:
        return caller, None
    tenant = caller.tenant
    if asked != "flex":
        return caller, "priority" if tenant.rank == _HIGH else "default"
    if tenant.rank < _LOW:
        share = structs.replace(tenant.share, priority=tenant.share.priority + tenant.rank - _LOW)
        tenant = replace(tenant, rank=_LOW, share=share)
    return replace(caller, tenant=tenant), "flex"
