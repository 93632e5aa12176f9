"""Redis for tenants, and telemetry that can be looked at."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry

from gateway.telemetry.log import EventLog
from gateway.telemetry.tenancy import TenancyTelemetry
from tests.gateway.store.conftest import own_redis, redis_server, shared_redis

__all__ = ["own_redis", "redis_server", "shared_redis"]


@dataclass
class Seen:
    """Telemetry, and what it shows."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    log: EventLog = field(default_factory=lambda: EventLog(logging.getLogger("gateway")))

    def __post_init__(self) -> None:
        self.telemetry = TenancyTelemetry(self.registry, self.log)

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"pando_gateway_{name}", labels) or 0.0


@pytest.fixture
def seen() -> Seen:
    return Seen()
