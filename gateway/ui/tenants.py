"""What each tenant has running and waiting, used, and was refused, as the metrics count it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct
from prometheus_client.metrics import MetricWrapperBase

from gateway.telemetry.metrics import Telemetry

MAX_TENANTS = 100


class TenantRow(Struct, frozen=True):
    """One tenant, since the gateway began. refused: answered with a status from 400 to 499."""

    id: str
    running: int
    waiting: int
    requests: int
    refused: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class TenantTable(Struct, frozen=True):
    """The busiest tenants. count: of all."""

    count: int
    rows: list[TenantRow]


Sums = Mapping[str, float]


def tenant_table(telemetry: Telemetry, waiting: Mapping[tuple[str, str], int]) -> TenantTable:
    """A pass over the series of all tenants: milliseconds with hundreds of them.

    Any thread may call it. waiting: by tenant and model.
    """
    in_flight = _by_tenant(telemetry.in_flight)
    answered = {kind: defaultdict[str, float](float) for kind in "245"}
    for family in telemetry.requests.collect():
        for sample in family.samples:
            kind = sample.labels["status"][:1]
            if kind in answered:
                answered[kind][sample.labels["tenant"]] += sample.value
    queued: dict[str, int] = defaultdict(int)
    for (tenant, _), count in waiting.items():
        queued[tenant] += count
    counters = [telemetry.prompt_tokens, telemetry.cached_tokens, telemetry.completion_tokens]
    tokens = [_by_tenant(counter) for counter in counters]
    known = {*in_flight, *queued, *answered["2"], *answered["4"], *answered["5"]} - {""}
    rows = [
        TenantRow(
            tenant,
            max(0, int(in_flight.get(tenant, 0)) - queued.get(tenant, 0)),
            queued.get(tenant, 0),
            *(int(answered[kind].get(tenant, 0)) for kind in "245"),
            *(int(one.get(tenant, 0)) for one in tokens),
        )
        for tenant in known
    ]
    rows.sort(key=lambda row: (-row.running - row.waiting, -row.prompt_tokens, row.id))
    return TenantTable(len(rows), rows[:MAX_TENANTS])


def _by_tenant(metric: MetricWrapperBase) -> Sums:
    """The sum of a metric's samples, by tenant."""
    sums: dict[str, float] = defaultdict(float)
    for family in metric.collect():
        for sample in family.samples:
            sums[sample.labels["tenant"]] += sample.value
    return sums
