"""OpenTelemetry: a request's life as spans, told once it is over; off without an endpoint.

    gateway.request      from acceptance to the end; below a client's span (traceparent), if any
    ├── gateway.queue    until it first went to a worker
    ├── gateway.worker   with one worker; another one behind a retry. Event: first_output
    └── ...

Nothing is done while a request runs: times are those that its life has anyway. No text of a prompt
is in a span. The packages of the extra `otel` are imported by `tracing_to` alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.config import ConfigError, TracingConfig
from gateway.telemetry.lives import Life
from gateway.telemetry.log import EventLog

_NS = 1e9
# How long a collector may take; the gateway's end waits for the last spans.
_TIMEOUT_S = 5


class Traces(Protocol):
    """Where lives become spans."""

    @property
    def is_on(self) -> bool:
        """Whether a request's traceparent is worth a look."""
        ...

    def tell(self, life: Life, traceparent: str | None, /) -> str | None:
        """The life is on its way out, under a client's span; the trace's id, if it is sampled."""
        ...

    def close(self) -> None:
        """What was told is sent, or given up after seconds. Blocks."""
        ...


class NoTraces:
    """Tracing that is off."""

    is_on = False

    def tell(self, _: Life, __: str | None) -> str | None:
        """As Traces: nothing."""
        return None

    def close(self) -> None:
        """As Traces: nothing."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """clock: telemetry's. wall_clock: seconds since 1970."""

    clock: Callable[[], float]
    wall_clock: Callable[[], float] = time.time


class SpanTraces:
    """Lives as spans of an OpenTelemetry provider, which decides what is sampled."""

    is_on = True

    def __init__(self, provider: Any, clocks: Clocks, log: EventLog):
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("pando.gateway")
        self._extract = TraceContextTextMapPropagator().extract
        self._below = set_span_in_context
        self._clocks = clocks
        self._log = log

    def tell(self, life: Life, traceparent: str | None) -> str | None:
        """As Traces, and never in the request's way: what fails here is only logged.

        A traceparent that is none is passed over, as W3C wants it.
        """
        try:
            return self._tell(life, traceparent)
        except Exception:
            self._log.exception("trace_failed", request_id=life.request_id)
            return None

    def _tell(self, life: Life, traceparent: str | None) -> str | None:
        shift = self._clocks.wall_clock() - self._clocks.clock()

        def ns(at: float) -> int:
            return int((at + shift) * _NS)

        parent = self._extract({"traceparent": traceparent} if traceparent else {})
        root = self._tracer.start_span(
            "gateway.request", parent, start_time=ns(life.began), attributes=_attributes(life)
        )
        context = root.get_span_context()
        if not context.trace_flags.sampled:
            return None
        below = self._below(root)
        first_sent = life.sent[0].at if life.sent else life.ended
        queue = self._tracer.start_span("gateway.queue", below, start_time=ns(life.began))
        queue.end(ns(first_sent))
        ends = [sent.at for sent in life.sent[1:]] + [life.ended]
        for sent, end in zip(life.sent, ends, strict=True):
            worker = {"pando.worker": sent.worker}
            span = self._tracer.start_span(
                "gateway.worker", below, start_time=ns(sent.at), attributes=worker
            )
            if life.first_output is not None and sent.at <= life.first_output <= end:
                span.add_event("first_output", timestamp=ns(life.first_output))
            span.end(ns(end))
        root.end(ns(life.ended))
        return f"{context.trace_id:032x}"

    def close(self) -> None:
        """As Traces."""
        self._provider.shutdown()


def _attributes(life: Life) -> dict[str, str | int]:
    """What is said of a request: ids, counts and reasons."""
    told: dict[str, str | int] = {
        "pando.request_id": life.request_id,
        "pando.tenant": life.tenant,
        "pando.route": life.route,
        "pando.routing": life.explanation,
        "pando.outcome": life.outcome,
        "gen_ai.request.model": life.model,
        "gen_ai.usage.input_tokens": life.prompt_tokens,
        "gen_ai.usage.output_tokens": life.completion_tokens,
        "pando.cached_tokens": life.cached_tokens,
        "http.response.status_code": life.status,
    }
    if life.finding is not None:
        told["pando.cache"] = life.finding.header()
    return told


def tracing_to(config: TracingConfig, clocks: Clocks, name: str, log: EventLog) -> Traces:
    """Traces that go where the settings say; name: the gateway's. Raises ConfigError."""
    if config.endpoint is None:
        return NoTraces()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise ConfigError(
            f"tracing.endpoint is {config.endpoint!r}: the extra `otel` is not installed ({error})"
        ) from error
    resource = Resource.create({"service.name": "pando-gateway", "service.instance.id": name})
    sampler = ParentBased(TraceIdRatioBased(config.sample))
    provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(config.endpoint, timeout=_TIMEOUT_S))
    )
    return SpanTraces(provider, clocks, log)
