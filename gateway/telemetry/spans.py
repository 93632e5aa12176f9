"""Lives as spans of OpenTelemetry's SDK. Imported only where tracing is on: the extra `otel`.

A span's id is made when a request goes to a worker, so that a server in the fleet can put its own
spans below; the spans are made of a life that is over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.telemetry.lives import Life
from gateway.telemetry.log import EventLog
from gateway.telemetry.stays import Stay, stays
from gateway.telemetry.tracing import Clocks, Trace

_NS = 1e9
ROOT = "gateway.request"


class GivenIds(IdGenerator):  # type: ignore[misc]
    """The next span has the ids that were given, if any were. Used by one thread.

    bits: so many random ones.
    """

    def __init__(self, bits: Callable[[int], int]):
        self._bits = bits
        self._trace_id = self._span_id = 0

    def give(self, span_id: int, trace_id: int = 0) -> None:
        """For the next span; 0: one of its own."""
        self._span_id, self._trace_id = span_id, trace_id

    def generate_span_id(self) -> int:
        """As IdGenerator."""
        return self._span_id or self._new(64)

    def generate_trace_id(self) -> int:
        """As IdGenerator."""
        return self._trace_id or self._new(128)

    def is_trace_id_random(self) -> bool:
        """As IdGenerator: they are."""
        return True

    def _new(self, size: int) -> int:
        """Not 0, which means none."""
        return self._bits(size) or 1


class SpanTraces:
    """As Traces. provider: OpenTelemetry's, which has `ids`; it decides what is sampled."""

    is_on = True

    def __init__(self, provider: Any, ids: GivenIds, clocks: Clocks, log: EventLog):
        self._provider = provider
        self._tracer = provider.get_tracer("pando.gateway")
        self._extract = TraceContextTextMapPropagator().extract
        self._ids = ids
        self._clocks = clocks
        self._log = log

    def begin(self, traceparent: str | None) -> Trace | None:
        """As Traces, and never in the request's way: what fails here is only logged.

        A traceparent that is none is passed over, as W3C wants it.
        """
        try:
            return self._begin(traceparent)
        except Exception:
            self._log.exception("trace_failed")
            return None

    def _begin(self, traceparent: str | None) -> Trace | None:
        parent = self._extract({"traceparent": traceparent} if traceparent else {})
        above, ids = get_current_span(parent).get_span_context(), self._ids
        ids.give(0)
        trace_id = above.trace_id if above.is_valid else ids.generate_trace_id()
        if not self._provider.sampler.should_sample(parent, trace_id, ROOT).decision.is_sampled():
            return None
        return Trace(trace_id, ids.generate_span_id(), parent, ids.generate_span_id)

    def tell(self, life: Life, trace: Trace) -> None:
        """As Traces, and never in the request's way either."""
        try:
            self._tell(life, trace)
        except Exception:
            self._log.exception("trace_failed", request_id=life.request_id)

    def _tell(self, life: Life, trace: Trace) -> None:
        clocks = self._clocks
        ns = partial(_ns, shift=clocks.wall_clock() - clocks.clock())
        self._ids.give(trace.span_id, trace.trace_id)
        root = self._tracer.start_span(
            ROOT, trace.parent, start_time=ns(life.began), attributes=_attributes(life)
        )
        below = set_span_in_context(root)
        self._ids.give(0)
        if not life.sent:
            self._tracer.start_span("gateway.queue", below, start_time=ns(life.began)).end(
                ns(life.ended)
            )
        for stay in stays(life):
            self._tell_stay(stay, life.first_output, below, ns)
        root.end(ns(life.ended))

    def _tell_stay(
        self, stay: Stay, output: float | None, below: Any, ns: Callable[[float], int]
    ) -> None:
        """A wait for a worker, the time with it, and what the worker says of that."""
        start = self._tracer.start_span
        start("gateway.queue", below, start_time=ns(stay.waited_from)).end(ns(stay.began))
        worker = {"pando.worker": stay.worker}
        self._ids.give(stay.span_id)
        span = start("gateway.worker", below, start_time=ns(stay.began), attributes=worker)
        self._ids.give(0)
        if stay.num_preemptions:
            span.set_attribute("pando.preemptions", stay.num_preemptions)
        if output is not None and stay.began <= output <= stay.ended:
            span.add_event("first_output", timestamp=ns(output))
        inside = set_span_in_context(span)
        for phase in stay.phases:
            name = f"worker.{phase.name}"
            start(name, inside, start_time=ns(phase.began), attributes=worker).end(ns(phase.ended))
        span.end(ns(stay.ended))

    def close(self) -> None:
        """As Traces."""
        self._provider.shutdown()


def _ns(at: float, shift: float) -> int:
    """Nanoseconds since 1970."""
    return int((at + shift) * _NS)


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
