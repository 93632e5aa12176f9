"""Requests as spans: their order and times, whose trace they belong to, and that it is off."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from gateway.config import ConfigError, TracingConfig
from gateway.telemetry.exporting import tracing_to
from gateway.telemetry.lives import Life, Sent
from gateway.telemetry.log import EventLog
from gateway.telemetry.stays import stays
from gateway.telemetry.tracing import Clocks, NoTraces
from gateway.timing import Timing
from pando.ports import free_ports
from proto import worker_pb2 as pb
from tests.gateway.conftest import Live, Serve, StartWorker
from tests.gateway.fake_worker import Line, silence
from tests.gateway.fleet.foreign_live import CHAT, cut, delta, fake_server, member

pytest.importorskip("opentelemetry.sdk.trace", reason="the extra `otel` is not installed")

from gateway.telemetry.spans import GivenIds, SpanTraces

CLOCKS = Clocks(lambda: 100.0, lambda: 1_000_100.0)
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "the launch code"
LOG = EventLog(logging.getLogger("gateway"))
CHANCE = random.Random(5)


def memory(sample: float = 1.0) -> tuple[SpanTraces, Any]:
    """Traces that stay here, and the exporter that has them."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    exporter = InMemorySpanExporter()
    ids = GivenIds(random.Random(7).getrandbits)
    sampler = ParentBased(TraceIdRatioBased(sample))
    provider = TracerProvider(sampler, shutdown_on_exit=False, id_generator=ids)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return SpanTraces(provider, ids, CLOCKS, LOG), exporter


def told(traces: SpanTraces, life: Life, traceparent: str | None = None) -> str | None:
    """The life under a client's span; the trace's name, if it is sampled."""
    trace = traces.begin(traceparent)
    if trace is None:
        return None
    traces.tell(life, trace)
    return trace.name


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
        sent=(
            Sent(91.0, "w0", 10, 92.0, Timing(0.5, 0.25)),
            Sent(93.0, "w1", 11, 99.0, Timing(5.0, 0.25, 0.5, 1.0, 3)),
        ),
        first_output=94.5,
    )


def test_a_life_is_a_span_with_each_wait_and_worker_below_and_the_workers_own_there() -> None:
    traces, exporter = memory()
    name = told(traces, retried())
    spans = exporter.get_finished_spans()
    start = 1_000_000 * 10**9
    seen = [
        (
            span.name,
            (span.attributes or {}).get("pando.worker"),
            (span.start_time - start) / 10**9,
            (span.end_time - start) / 10**9,
        )
        for span in spans
    ]
    assert seen == [
        ("gateway.queue", None, 90, 91),
        # Half a second there, in the middle of the whole one.
        ("worker.prepare", "w0", 91.25, 91.5),
        ("worker.wait", "w0", 91.5, 91.75),
        ("gateway.worker", "w0", 91, 92),
        ("gateway.queue", None, 92, 93),
        # The first output came at 94.5, so it began until 93.5: in the middle of that.
        ("worker.prepare", "w1", 93.25, 93.5),
        ("worker.wait", "w1", 93.5, 93.75),
        ("worker.prefill", "w1", 93.75, 94.25),
        ("worker.decode", "w1", 94.25, 98.25),
        ("gateway.worker", "w1", 93, 99),
        ("gateway.request", None, 90, 99),
    ]
    root = spans[-1]
    assert f"{root.context.trace_id:032x}" == name
    assert root.parent is None
    above = [span.parent.span_id for span in spans[:-1]]
    top = root.context.span_id
    assert above == [top, 10, 10, top, top, 11, 11, 11, 11, top]
    assert (spans[3].context.span_id, spans[9].context.span_id) == (10, 11)
    often = [span.attributes.get("pando.preemptions") for span in (spans[3], spans[9])]
    assert often == [None, 3]
    assert [len(span.events) for span in spans] == [0] * 9 + [1, 0]
    assert spans[9].events[0].timestamp == start + int(94.5 * 10**9)


@settings(max_examples=150)
@given(
    marks=st.lists(st.none() | st.floats(0, 1e13), min_size=3, max_size=3),
    ended_s=st.floats(0, 1e13),
    over=st.none() | st.floats(91, 99),
    output=st.none() | st.floats(90, 99),
)
def test_whatever_a_worker_says_its_phases_lie_in_its_time_one_behind_the_other(
    marks: list[float | None], ended_s: float, over: float | None, output: float | None
) -> None:
    prepared_s, admitted_s, first_token_s = marks
    timing = Timing(ended_s, prepared_s, admitted_s, first_token_s)
    sent = (Sent(91.0, "w0", 1, over, timing),)
    (stay,) = stays(replaced(retried(), sent=sent, first_output=output))
    edges = [edge for phase in stay.phases for edge in (phase.began, phase.ended)]
    assert edges == sorted(edges)
    assert stay.began <= edges[0]
    assert edges[-1] <= stay.ended
    assert edges[1:-1:2] == edges[2::2]


def test_of_several_prompts_the_first_output_places_nothing() -> None:
    (_, alone), (_, several) = (
        stays(replaced(retried(), num_parts=number, first_output=94.0)) for number in (1, 2)
    )
    assert (alone.phases[0].began, several.phases[0].began) == (93.0, 93.5)


@pytest.mark.parametrize(("flags", "is_told"), [("01", True), ("00", False)])
def test_a_clients_trace_goes_on_and_its_own_decision_holds(flags: str, is_told: bool) -> None:
    traces, exporter = memory(sample=0.0 if is_told else 1.0)
    name = told(traces, retried(), f"00-{TRACE}-{PARENT}-{flags}")
    assert name == (TRACE if is_told else None)
    spans = exporter.get_finished_spans()
    assert len(spans) == (11 if is_told else 0)
    if is_told:
        assert f"{spans[-1].parent.span_id:016x}" == PARENT


def test_a_traceparent_that_is_none_is_passed_over() -> None:
    traces, exporter = memory()
    assert told(traces, retried(), f"00-{TRACE}-zz; drop-01") not in (None, TRACE)
    assert exporter.get_finished_spans()[-1].parent is None


def test_what_is_not_sampled_is_not_told() -> None:
    traces, exporter = memory(sample=0.0)
    assert told(traces, retried()) is None
    assert not exporter.get_finished_spans()


def test_what_fails_is_logged_and_never_in_the_way(caplog: pytest.LogCaptureFixture) -> None:
    traces, exporter = memory()
    told(traces, replaced(retried(), ended=float("nan")))
    assert caplog.text.count("trace_failed") == 1
    broken: Any = 7
    assert traces.begin(broken) is None
    assert caplog.text.count("trace_failed") == 2
    told(traces, retried())
    assert len({span.context.trace_id for span in exporter.get_finished_spans()[-11:]}) == 1


def traced(live: Live) -> Any:
    """The exporter that has a gateway's spans from now on."""
    traces, exporter = memory()
    pipeline = live.gateway.pipeline
    pipeline.means = replace(pipeline.means, traces=traces)
    return exporter


def below(spans: Any, name: str) -> list[list[str]]:
    """The names of what lies below each span of a name, in order."""
    return [
        [one.name for one in spans if one.parent and one.parent.span_id == span.context.span_id]
        for span in spans
        if span.name == name
    ]


async def test_a_request_is_traced_and_no_text_of_it_is(
    start_worker: StartWorker, serve_linked: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker is one of the version before, which tells no times."""
    live = await serve_linked(await start_worker())
    exporter = traced(live)
    caplog.set_level("INFO", logger="gateway")
    body = {"model": "tiny", "messages": [{"role": "user", "content": SECRET}]}
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    answer = await live.http.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200
    await live.http.aclose()
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["gateway.queue", "gateway.worker", "gateway.request"]
    assert spans[-1].attributes["gen_ai.usage.input_tokens"] == 7
    assert SECRET not in "".join(span.to_json() for span in spans)
    assert f"trace_id={TRACE}" in caplog.text
    assert "worker_wait_seconds" not in caplog.text


async def timely(submit: pb.Submit, line: Line) -> None:
    """A word, and what its time went to."""
    number = submit.request_id
    output = pb.Output(request_id=number, text="Hi", token_ids=b"\1\0\0\0", finish_reason=pb.STOP)
    usage = pb.Usage(prompt_tokens=7, completion_tokens=1)
    timing = pb.Timing(prepared_us=1, admitted_us=3, first_token_us=7, ended_us=7)
    timing.num_preemptions = 2
    line.step(outputs=[output], done=[pb.Done(request_id=number, usage=usage, timing=timing)])


PHASES = ["worker.prepare", "worker.wait", "worker.prefill", "worker.decode"]


async def test_a_retry_has_the_times_of_both_workers(
    start_worker: StartWorker, serve_linked: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    async def script(submit: pb.Submit, line: Line) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            return await timely(submit, line)
        timing = pb.Timing(prepared_us=3, ended_us=5)
        failed = pb.Failed(request_id=submit.request_id, code=pb.DRAINING, timing=timing)
        return line.step(failed=[failed])

    workers = [await start_worker(name=name, script=script) for name in ("w0", "w1")]
    live = await serve_linked(*workers)
    exporter = traced(live)
    caplog.set_level("INFO", logger="gateway")
    assert (await live.http.post("/v1/chat/completions", json=CHAT)).status_code == 200
    await live.http.aclose()
    spans = exporter.get_finished_spans()
    assert below(spans, "gateway.worker") == [PHASES[:2], PHASES]
    assert below(spans, "gateway.request") == [["gateway.queue", "gateway.worker"] * 2]
    assert "worker_prepare_seconds=1e-06 worker_wait_seconds=2e-06" in caplog.text
    assert "worker_prefill_seconds=4e-06 worker_decode_seconds=0" in caplog.text
    assert "worker_preemptions=2" in caplog.text


async def test_a_worker_that_dies_tells_nothing(
    start_worker: StartWorker, serve_linked: Serve
) -> None:
    calls = 0

    async def script(submit: pb.Submit, line: Line) -> None:
        nonlocal calls
        calls += 1
        await (silence if calls == 1 else timely)(submit, line)

    workers = [await start_worker(name=name, script=script) for name in ("w0", "w1")]
    live = await serve_linked(*workers)
    exporter = traced(live)
    asking = asyncio.create_task(live.http.post("/v1/chat/completions", json=CHAT))
    await live.until(lambda: calls == 1)
    [first] = [worker for worker in workers if worker.submits]
    await first.stop()
    assert (await asking).status_code == 200
    await live.http.aclose()
    assert below(exporter.get_finished_spans(), "gateway.worker") == [[], PHASES]


@pytest.mark.parametrize("is_on", [True, False])
async def test_a_foreign_servers_spans_go_below_the_time_with_it(serve: Serve, is_on: bool) -> None:
    heads: list[str | None] = []

    async def answer(request: Any) -> Any:
        heads.append(request.headers.get("traceparent"))
        return await cut(delta("x", finish_reason="stop"), "[DONE]")(request)

    (port,) = free_ports(1)
    async with fake_server(port, answer):
        live = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await live.until_linked("f0")
        exporter = traced(live) if is_on else None
        flags = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        reply = await live.http.post("/v1/chat/completions", json=CHAT, headers=flags)
        assert reply.status_code == 200
        await live.http.aclose()
    if exporter is None:
        assert heads == [None]
    else:
        (span,) = [one for one in exporter.get_finished_spans() if one.name == "gateway.worker"]
        assert heads == [f"00-{TRACE}-{span.context.span_id:016x}-01"]


async def test_of_several_prompts_those_behind_the_first_go_below_the_request(serve: Serve) -> None:
    heads: dict[str, str] = {}

    async def answer(request: Any) -> Any:
        heads[json.loads(await request.body())["prompt"]] = request.headers["traceparent"]
        choice = {"index": 0, "text": "x", "finish_reason": "stop"}
        return await cut(json.dumps({"choices": [choice]}), "[DONE]")(request)

    (port,) = free_ports(1)
    async with fake_server(port, answer):
        live = await serve(foreign=(member(f"http://127.0.0.1:{port}"),))
        await live.until_linked("f0")
        exporter = traced(live)
        body = {"model": "tiny", "prompt": ["one", "two"]}
        assert (await live.http.post("/v1/completions", json=body)).status_code == 200
        await live.http.aclose()
    spans = {span.name: span.context for span in exporter.get_finished_spans()}
    named = {"one": spans["gateway.worker"], "two": spans["gateway.request"]}
    assert heads == {
        prompt: f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
        for prompt, context in named.items()
    }


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """An OTLP/HTTP collector: its URL, and the bodies that came."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", bodies
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_collector_gets_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with collector() as (url, bodies):
        traces = tracing_to(TracingConfig(url), CLOCKS, CHANCE, "gw-7", LOG)
        trace = traces.begin(f"00-{TRACE}-{PARENT}-01")
        assert trace is not None
        traces.tell(retried(), trace)
        traces.close()
    sent: Any = ExportTraceServiceRequest()
    for body in bodies:
        sent.MergeFromString(body)
    (resource,) = sent.resource_spans
    named = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (named["service.name"], named["service.instance.id"]) == ("pando-gateway", "gw-7")
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    assert len(spans) == 11
    assert {span.trace_id.hex() for span in spans} == {TRACE}


def test_without_an_endpoint_nothing_is_imported() -> None:
    assert isinstance(tracing_to(TracingConfig(), CLOCKS, CHANCE, "gw", LOG), NoTraces)
    assert NoTraces().begin(f"00-{TRACE}-{PARENT}-01") is None


def test_an_endpoint_without_the_packages_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match="the extra `otel` is not installed"):
        tracing_to(TracingConfig("http://127.0.0.1:4318/v1/traces"), CLOCKS, CHANCE, "gw", LOG)
