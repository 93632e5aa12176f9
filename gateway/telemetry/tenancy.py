"""The metrics of tenants, quotas and the store, and the log lines that go with them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gateway.telemetry.log import EventLog

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)


class TenancyTelemetry:
    """Counts in the registry, and says in the log what an operator may have to look at."""

    def __init__(self, registry: CollectorRegistry, log: EventLog):
        self._log = log
        self._degraded = Gauge(
            "pando_gateway_store_degraded",
            "Whether limits hold for this gateway alone, because Redis is away.",
            registry=registry,
        )
        self._failures = Counter(
            "pando_gateway_store_failures",
            "Times that Redis went away, and calls for usage or tenants that it did not answer.",
            registry=registry,
        )
        self.reserve_s = Histogram(
            "pando_gateway_quota_reserve_seconds",
            "What a request waited to be counted against its tenant's quota.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._refusals = Counter(
            "pando_gateway_quota_refusals",
            "Requests refused because a quota was used up, by the limit.",
            ["tenant", "limit"],
            registry=registry,
        )
        self._tenants = Gauge(
            "pando_gateway_tenants", "Tenants known, by source.", ["source"], registry=registry
        )
        self._stale = Gauge(
            "pando_gateway_tenants_stale",
            "Whether a source of tenants could not be read; those known from it stay.",
            ["source"],
            registry=registry,
        )
        self._reasons: dict[str, str] = {}

    def store_degraded(self, reason: str) -> None:
        """Limits are this gateway's own from now on."""
        self._degraded.set(1)
        self._failures.inc()
        self._log.warning("store_degraded", reason=reason)

    def store_restored(self) -> None:
        """Limits are shared again."""
        self._degraded.set(0)
        self._log.warning("store_restored")

    def usage_delayed(self, reason: str) -> None:
        """What tenants used could not be written; it will be tried again."""
        self._failures.inc()
        self._log.debug("usage_delayed", reason=reason)

    def usage_lost(self, rows: int, tokens: int) -> None:
        """What tenants used was never written, and the gateway ends."""
        self._log.warning("usage_lost", rows=rows, tokens=tokens)

    def refused(self, tenant: str, limit: str) -> None:
        """A request was refused for a quota."""
        self._refusals.labels(tenant, limit).inc()

    def tenants_read(self, source: str, count: int) -> None:
        """A source has other tenants than before."""
        self._tenants.labels(source).set(count)
        self._log.info("tenants_read", source=source, tenants=count)

    def source_broken(self, source: str, reason: str) -> None:
        """A source cannot be read; told once for each reason."""
        self._stale.labels(source).set(1)
        if self._reasons.get(source) != reason:
            self._reasons[source] = reason
            self._log.warning("tenants_stale", source=source, reason=reason)

    def source_mended(self, source: str) -> None:
        """A source can be read."""
        self._stale.labels(source).set(0)
        if self._reasons.pop(source, None) is not None:
            self._log.info("tenants_fresh", source=source)

    def tenants_put_back(self, source: str, count: int) -> None:
        """A source began anew; so many that were known here are in it again."""
        self._log.warning("tenants_put_back", source=source, tenants=count)

    def tenant_shadowed(self, tenant: str, source: str, reason: str) -> None:
        """A tenant, or a key of it, is passed over."""
        self._log.warning("tenant_shadowed", tenant=tenant, source=source, reason=reason)
