"""One HTTP request, understood: what each worker is asked, for whom, and how it is routed."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.request import Ask
from gateway.routing.prefix import PrefixKey
from gateway.tenancy.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Part:
    """One prompt: the key it is routed by, and what the worker is asked."""

    key: PrefixKey
    ask: Ask


@dataclass(frozen=True, slots=True)
class Job:
    """One HTTP request. model: the one that workers serve, aliases resolved."""

    request_id: str
    tenant: Tenant
    model: str
    route: str
    parts: tuple[Part, ...]
