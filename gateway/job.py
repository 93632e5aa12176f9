"""One HTTP request, understood: what each worker is asked, for whom, and how it is routed."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.request import Ask
from gateway.routing.prefix import PrefixKey
from gateway.routing.route import Want
from gateway.tenancy.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Part:
    """One prompt: how it is routed, and what the worker is asked."""

    want: Want
    ask: Ask

    @property
    def key(self) -> PrefixKey:
        """What it shares with others: the bucket that it waits in."""
        return self.want.chain.key


@dataclass(frozen=True, slots=True)
class Job:
    """One HTTP request. model: the one that workers serve, aliases resolved."""

    request_id: str
    tenant: Tenant
    model: str
    route: str
    parts: tuple[Part, ...]
