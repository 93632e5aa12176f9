"""What a router itself costs: CPU per request and per streamed event, and added latency.

    requests   16 connections, each with a small answer at a time: CPU per request
    streams    64 connections, an event every 10 ms each: CPU per event
    calm       64 connections that pause between requests: latency, against no router at all
    decisions  our router's own decision among 1,000 workers

Fake workers answer at once, so what is left is the router. CPU is that of its whole process tree.
Ours has fake workers that speak our contract; smg, and ours once more (`pando-http`), have those
with OpenAI's API. `stack` is the libraries under ours alone, and answers whole requests only.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvloop
from prometheus_client import CollectorRegistry

from gateway.config import RoutingConfig
from gateway.fleet.view import View
from gateway.fleet.workers import Fleet, Worker, WorkerInfo
from gateway.request import Usage
from gateway.routing.prefix import Scope, chat_chain
from gateway.routing.route import Want
from gateway.routing.router import Router
from gateway.telemetry.metrics import Telemetry
from loadtest.drive import Drive, Driven, drive_async
from loadtest.peers.routers import ROUTERS
from loadtest.processes import cpu_seconds
from loadtest.report import Report
from loadtest.simulation import NoDoor

NAME = "overhead"
COLUMNS = ("router", "CPU us a request", "CPU us an event", "p50 at 64, ms", "p99, ms", "errors")


@dataclass(frozen=True, slots=True)
class Shape:
    """How long each load lasts, how often all are repeated, and where smg is."""

    seconds: float = 5.0
    rounds: int = 3
    smg: str = "smg"
    routers: tuple[str, ...] = ("pando", "stack", "pando-http", "smg", "direct")


@dataclass(frozen=True, slots=True)
class Cost:
    """One round of one router."""

    request_us: float
    event_us: float = math.nan
    p50_s: float = math.nan
    p99_s: float = math.nan
    errors: int = 0


def measure(shape: Shape, progress: Callable[[str], None]) -> dict[str, list[Cost]]:
    """Every router's rounds; they take turns, so that a busy spell hits all."""
    costs: dict[str, list[Cost]] = {name: [] for name in shape.routers}
    for number in range(shape.rounds):
        for name in shape.routers:
            progress(f"round {number + 1} of {shape.rounds}: {name}")
            costs[name].append(_one_round(name, shape))
    return costs


def _one_round(name: str, shape: Shape) -> Cost:
    requests = _driven(name, shape, 0.0, lambda port: Drive(port, 16, shape.seconds, max_tokens=16))
    if name == "stack":
        request_us = requests.cpu_s / max(requests.num_requests, 1) * 1e6
        return Cost(request_us, errors=requests.num_errors)
    streams = _driven(
        name, shape, 10.0, lambda port: Drive(port, 64, shape.seconds, stream=True, max_tokens=64)
    )
    calm = _driven(
        name, shape, 0.0, lambda port: Drive(port, 64, shape.seconds, max_tokens=16, think_s=0.25)
    )
    return Cost(
        requests.cpu_s / max(requests.num_requests, 1) * 1e6,
        streams.cpu_s / max(streams.num_events, 1) * 1e6,
        calm.quantile(0.5),
        calm.quantile(0.99),
        requests.num_errors + streams.num_errors + calm.num_errors,
    )


def _driven(name: str, shape: Shape, tick_ms: float, drive: Callable[[int], Drive]) -> Driven:
    with ROUTERS[name](tick_ms, shape.smg) as router:
        return uvloop.run(drive_async(drive(router.port), lambda: cpu_seconds(router.pid)))


def decisions(num_workers: int = 1000, count: int = 4000, seed: int = 0) -> list[float]:
    """Seconds of each decision among workers that hold and queue different things."""
    rng = random.Random(seed)
    fleet = Fleet()
    router = Router(fleet, RoutingConfig(), Telemetry(CollectorRegistry()), chance=rng)
    scope = Scope("fake-model", b"acme")
    systems = [f"System prompt {number} " + "x" * 2000 for number in range(200)]
    wants = [_want(scope, rng.choice(systems), number) for number in range(count)]
    for number in range(num_workers):
        worker = fleet.join(WorkerInfo(f"w{number}", "i", "fake-model"), NoDoor())
        _fill(worker, rng.sample(wants, 20), rng)
    uvloop.run(router.rebuild())
    taken = []
    for want in wants:
        began = time.perf_counter()
        route = router.route(want)
        taken.append(time.perf_counter() - began)
        router.dispatched(want, route)
    return taken


def _want(scope: Scope, system: str, number: int) -> Want:
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": f"Question {number}"},
        {"role": "assistant", "content": "An answer. " * 20},
        {"role": "user", "content": "And then?"},
    ]
    return Want("fake-model", "acme", chat_chain(scope, messages))


def _fill(worker: Worker, wants: Sequence[Want], rng: random.Random) -> None:
    worker.others_tokens = rng.randrange(5000)
    for want in wants:
        for digest, size in zip(want.chain.digests, want.chain.sizes, strict=True):
            worker.view.store(digest, size // 4)


def growth(count: int, num_workers: int = 8, view_boundaries: int = 20_000) -> float:
    """Resident memory after `count` distinct prefixes over that after a third of them.

    Workers tell what they store, as fast as it comes; views are bounded well below the count.
    """
    fleet = Fleet(new_view=partial(View, view_boundaries))
    router = Router(fleet, RoutingConfig(), Telemetry(CollectorRegistry()))
    scope = Scope("fake-model", b"acme")
    for number in range(num_workers):
        fleet.join(WorkerInfo(f"w{number}", "i", "fake-model"), NoDoor())
    uvloop.run(router.rebuild())
    before = 0
    for number in range(count):
        want = _want(scope, f"System prompt {number}", number)
        route = router.route(want)
        expectation = router.dispatched(want, route)
        for boundary in route.boundaries:
            route.worker.view.store(boundary.digest, 100)
        expectation.computed()
        expectation.over()
        router.finished(want, route, Usage(100, 0, 10))
        if number == count // 3:
            before = _resident()
    return _resident() / before


def _resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def report(
    costs: Mapping[str, Sequence[Cost]], taken: Sequence[float], grown: float | None = None
) -> Report:
    """The best round of each, and the ratios that the last line names."""
    best = {name: _best(rounds) for name, rounds in costs.items()}
    ours, other = best.get("pando"), best.get("smg")
    nobody = best.get("direct")
    p99 = sorted(taken)[int(0.99 * len(taken))]
    summary = {"decision_p99_ms": p99 * 1000}
    if ours and other:
        ratios = {
            "cpu_request_over_smg": ours.request_us / other.request_us,
            "cpu_token_over_smg": ours.event_us / other.event_us,
        }
        summary = {**ratios, **summary}
    if ours and nobody:
        summary["added_p50_ms"] = (ours.p50_s - nobody.p50_s) * 1000
    if grown is not None:
        summary["resident_growth"] = grown
    return Report(
        name=NAME,
        columns=COLUMNS,
        rows=[_row(name, cost) for name, cost in best.items()],
        summary=summary,
    )


def _best(rounds: Sequence[Cost]) -> Cost:
    return Cost(
        min(one.request_us for one in rounds),
        min(one.event_us for one in rounds),
        min(one.p50_s for one in rounds),
        min(one.p99_s for one in rounds),
        sum(one.errors for one in rounds),
    )


def _row(name: str, cost: Cost) -> list[str]:
    return [
        name,
        f"{cost.request_us:,.0f}",
        *_streaming(cost),
        str(cost.errors),
    ]


def _streaming(cost: Cost) -> list[str]:
    """What is only measured where answers are streamed."""
    if math.isnan(cost.event_us):
        return ["", "", ""]
    return [f"{cost.event_us:,.1f}", f"{cost.p50_s * 1000:.2f}", f"{cost.p99_s * 1000:.2f}"]
