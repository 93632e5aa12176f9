"""Where spans go: to a collector over OTLP/HTTP, or nowhere."""

from __future__ import annotations

import random

from gateway.config import ConfigError, TracingConfig
from gateway.telemetry.log import EventLog
from gateway.telemetry.tracing import Clocks, NoTraces, Traces

# How long a collector may take; the gateway's end waits for the last spans.
_TIMEOUT_S = 5


def tracing_to(
    config: TracingConfig, clocks: Clocks, chance: random.Random, name: str, log: EventLog
) -> Traces:
    """Traces that go where the settings say; name: the gateway's. Raises ConfigError."""
    if config.endpoint is None:
        return NoTraces()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

        from gateway.telemetry.spans import GivenIds, SpanTraces
    except ImportError as error:
        raise ConfigError(
            f"tracing.endpoint is {config.endpoint!r}: the extra `otel` is not installed ({error})"
        ) from error
    resource = Resource.create({"service.name": "pando-gateway", "service.instance.id": name})
    sampler = ParentBased(TraceIdRatioBased(config.sample))
    ids = GivenIds(chance.getrandbits)
    provider = TracerProvider(sampler, resource, shutdown_on_exit=False, id_generator=ids)
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(config.endpoint, timeout=_TIMEOUT_S))
    )
    return SpanTraces(provider, ids, clocks, log)
