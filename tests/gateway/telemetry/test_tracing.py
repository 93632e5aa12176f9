"""Requests as spans: their order and times, whose trace they belong to, and that it is off."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.config import ConfigError, TracingConfig
from gateway.telemetry.lives import Life, Sent
from gateway.telemetry.log import EventLog
from gateway.telemetry.tracing import Clocks, NoTraces, SpanTraces, tracing_to
from tests.gateway.conftest import Serve, StartWorker

CLOCKS = Clocks(lambda: 100.0, lambda: 1_000_100.0)
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "the launch code"
LOG = EventLog(logging.getLogger("gateway"))


def memory(sample: float = 1.0) -> tuple[SpanTraces, Any]:
    """Traces that stay here, and the exporter that has them."""
    reason = "the extra `otel` is not installed"
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=reason)
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    exporter = InMemorySpanExporter()
    sampler = ParentBased(TraceIdRatioBased(sample))
    provider = sdk.TracerProvider(sampler, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return SpanTraces(provider, CLOCKS, LOG), exporter


def retried() -> Life:
    return Life(
        request_id="req-1",
        tenant="acme",
        model="tiny",
        route="chat_completions",
        began=90.0,
        ended=99.0,
        status=200,
        outcome="finished",
        sent=(Sent(91.0, "w0"), Sent(93.0, "w1")),
        first_output=94.5,
    )


def test_a_life_is_a_span_with_the_queue_and_each_worker_below() -> None:
    traces, exporter = memory()
    trace_id = traces.tell(retried(), None)
    spans = exporter.get_finished_spans()
    times = [
        (span.name, (span.attributes or {}).get("pando.worker"), span.start_time, span.end_time)
        for span in spans
    ]
    start = 1_000_000 * 10**9
    assert times == [
        ("gateway.queue", None, start + 90 * 10**9, start + 91 * 10**9),
        ("gateway.worker", "w0", start + 91 * 10**9, start + 93 * 10**9),
        ("gateway.worker", "w1", start + 93 * 10**9, start + 99 * 10**9),
        ("gateway.request", None, start + 90 * 10**9, start + 99 * 10**9),
    ]
    root = spans[-1]
    assert f"{root.context.trace_id:032x}" == trace_id
    assert root.parent is None
    assert {span.parent.span_id for span in spans[:-1]} == {root.context.span_id}
    assert [len(span.events) for span in spans] == [0, 0, 1, 0]
    assert spans[2].events[0].timestamp == start + int(94.5 * 10**9)


@pytest.mark.parametrize(("flags", "is_told"), [("01", True), ("00", False)])
def test_a_clients_trace_goes_on_and_its_own_decision_holds(flags: str, is_told: bool) -> None:
    traces, exporter = memory(sample=0.0 if is_told else 1.0)
    trace_id = traces.tell(retried(), f"00-{TRACE}-{PARENT}-{flags}")
    assert trace_id == (TRACE if is_told else None)
    spans = exporter.get_finished_spans()
    assert len(spans) == (4 if is_told else 0)
    if is_told:
        assert f"{spans[-1].parent.span_id:016x}" == PARENT


def test_a_traceparent_that_is_none_is_passed_over() -> None:
    traces, exporter = memory()
    assert traces.tell(retried(), f"00-{TRACE}-zz; drop-01") not in (None, TRACE)
    assert exporter.get_finished_spans()[-1].parent is None


def test_what_is_not_sampled_is_not_told() -> None:
    traces, exporter = memory(sample=0.0)
    assert traces.tell(retried(), None) is None
    assert not exporter.get_finished_spans()


def test_what_fails_is_logged_and_never_in_the_way(caplog: pytest.LogCaptureFixture) -> None:
    traces, _ = memory()
    broken: Any = msgspec.structs.replace(retried(), ended=float("nan"))
    assert traces.tell(broken, None) is None
    assert "trace_failed" in caplog.text


async def test_a_request_is_traced_and_no_text_of_it_is(
    start_worker: StartWorker, serve_linked: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    traces, exporter = memory()
    live = await serve_linked(await start_worker())
    pipeline = live.gateway.pipeline
    pipeline.means = replace(pipeline.means, traces=traces)
    caplog.set_level("INFO", logger="gateway")
    body = {"model": "tiny", "messages": [{"role": "user", "content": SECRET}]}
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    answer = await live.http.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["gateway.queue", "gateway.worker", "gateway.request"]
    assert spans[-1].attributes["gen_ai.usage.input_tokens"] == 7
    assert SECRET not in "".join(span.to_json() for span in spans)
    assert f"trace_id={TRACE}" in caplog.text


def test_without_an_endpoint_nothing_is_imported() -> None:
    assert isinstance(tracing_to(TracingConfig(), CLOCKS, "gw", LOG), NoTraces)
    assert NoTraces().tell(retried(), f"00-{TRACE}-{PARENT}-01") is None


def test_an_endpoint_without_the_packages_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match="the extra `otel` is not installed"):
        tracing_to(TracingConfig("http://127.0.0.1:4318/v1/traces"), CLOCKS, "gw", LOG)
