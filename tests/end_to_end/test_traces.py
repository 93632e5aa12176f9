"""A real gateway and real workers but for the model: a request's spans, across the link."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.config import GatewayConfig, WorkerConfig
from tests.gateway.conftest import FAST_LINK, Live, served
from tests.gateway.telemetry.test_tracing import below, traced
from tests.worker.door import Worker

SECRET = "the launch code"
PHASES = ["worker.prepare", "worker.wait", "worker.prefill", "worker.decode"]
ASKED = {
    "model": "m",
    "messages": [{"role": "user", "content": SECRET}],
    "max_tokens": 20,
    "ignore_eos": True,
}


@asynccontextmanager
async def fleet(folder: Path, *names: str) -> AsyncIterator[tuple[Live, list[Worker]]]:
    """A gateway that is linked with workers of these names, on the chain model."""
    workers = [Worker(folder, name=name) for name in names]
    for worker in workers:
        await worker.server.start()
        worker.engine.start(lambda: None)
    targets = tuple(WorkerConfig(f"127.0.0.1:{worker.port}") for worker in workers)
    config = GatewayConfig(port=0, workers=targets, link=FAST_LINK, shutdown_s=1.0)
    async with served(config) as live:
        await live.until_linked(*names)
        yield live, workers
        await live.http.aclose()
    for worker in workers:
        await worker.server.stop(None)
        await asyncio.to_thread(worker.engine.stop)


def assert_nested(spans: Any) -> None:
    """Every child lies in its parent, and a worker's phases are one behind the other."""
    by_id = {span.context.span_id: span for span in spans}
    for span in spans:
        if span.parent is not None:
            above = by_id[span.parent.span_id]
            assert above.start_time <= span.start_time <= span.end_time <= above.end_time
    for worker in [span for span in spans if span.name == "gateway.worker"]:
        inside = [span for span in spans if span.parent and span.parent == worker.context]
        for before, after in pairwise(inside):
            assert before.end_time == after.start_time


def slow(worker: Worker) -> Callable[[], None]:
    return lambda: time.sleep(0.005)


@pytest.fixture
def folder(smollm2_folder: Path) -> Path:
    return smollm2_folder


async def test_a_requests_spans_lie_within_one_another_and_add_up(folder: Path) -> None:
    async with fleet(folder, "w0") as (live, (worker,)):
        worker.runner.on_layer = slow(worker)
        exporter = traced(live)
        answer = await live.http.post("/v1/chat/completions", json=ASKED)
        assert answer.status_code == 200
        spans = exporter.get_finished_spans()
        asked = {"id": answer.headers["x-request-id"]}
        shown = (await live.http.get("/ui/request.json", params=asked)).json()
    assert below(spans, "gateway.worker") == [PHASES]
    assert_nested(spans)
    took = {span.name: (span.end_time - span.start_time) / 1e9 for span in spans}
    # Each step sleeps: a prefill is at least one, and twenty tokens are nineteen more.
    assert took["worker.prefill"] >= 0.005
    assert took["worker.decode"] >= 19 * 0.005
    assert sum(took[name] for name in PHASES) <= took["gateway.worker"] + 1e-6
    assert SECRET not in "".join(span.to_json() for span in spans)
    (stay,) = shown["workers"]
    assert [phase["name"] for phase in stay["phases"]] == [name[7:] for name in PHASES]
    for phase in stay["phases"]:
        assert phase["seconds"] == pytest.approx(took[f"worker.{phase['name']}"], abs=1e-5)


async def test_what_goes_on_elsewhere_has_the_times_of_both_workers(folder: Path) -> None:
    async with fleet(folder, "w0", "w1") as (live, workers):
        for worker in workers:
            worker.runner.on_layer = slow(worker)
        exporter = traced(live)
        asking = asyncio.create_task(live.http.post("/v1/chat/completions", json=ASKED))
        await live.until(lambda: any(worker.engine.load.running for worker in workers))
        [first] = [worker for worker in workers if worker.service.num_live]
        await live.until(lambda: first.engine.load.counters.generated_tokens > 2)
        first.service.hand_back()
        assert (await asking).status_code == 200
        spans = exporter.get_finished_spans()
    assert below(spans, "gateway.worker") == [PHASES, PHASES]
    assert below(spans, "gateway.request") == [["gateway.queue", "gateway.worker"] * 2]
    assert_nested(spans)
    names = [span.attributes["pando.worker"] for span in spans if span.name == "gateway.worker"]
    assert sorted(names) == ["w0", "w1"]
