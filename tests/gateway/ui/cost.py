"""`python -m tests.gateway.ui.cost`: CPU that the page takes, of a request and of a look."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable

import msgspec
from prometheus_client import CollectorRegistry

from gateway.doctor.finding import Finding, Reason
from gateway.fleet.workers import Fleet, WorkerInfo
from gateway.request import Usage
from gateway.routing.route import Reason as RouteReason
from gateway.routing.route import Route
from gateway.telemetry.lives import MAX_DEPTH, MAX_LIVES, Beginning, Life, Sent
from gateway.telemetry.metrics import Subject, Telemetry
from gateway.ui.fleet import Crew
from gateway.ui.history import SAMPLES, History
from gateway.ui.prefixes import prefix_trees
from gateway.ui.tenants import tenant_table
from tests.gateway.conftest import NoDoor


def us(work: Callable[[], object], number: int) -> str:
    """CPU of one, in microseconds."""
    return f"{timeit.timeit(work, number=number, timer=time.process_time) / number * 1e6:.2f}"


def lived(number: int, telemetry: Telemetry) -> Life:
    """A request of one of ten tenants; its first four boundaries are all tenants' requests'."""
    digests = tuple(
        (b"%d/%d" % (depth, number if depth > 3 else 0)).ljust(16) for depth in range(40)
    )
    return Life(
        request_id=f"req-{number}",
        tenant=f"tenant-{number % 10}",
        model="tiny",
        route="chat_completions",
        began=telemetry.clock(),
        ended=telemetry.clock(),
        status=200,
        outcome="finished",
        sent=(Sent(telemetry.clock(), "w0"),),
        finding=Finding(Reason.HIT),
        beginning=Beginning(digests[:MAX_DEPTH], ("user",) * MAX_DEPTH),
    )


def main() -> None:
    """Print it."""
    telemetry, fleet = Telemetry(CollectorRegistry()), Fleet()
    workers = [fleet.join(WorkerInfo(f"w{n}", "first", "tiny"), NoDoor()) for n in range(8)]
    history = History(telemetry.totals, telemetry.clock)
    for number in range(1000):
        subject = Subject(f"tenant-{number}", "tiny", "chat_completions")
        telemetry.begin(subject).end(200, "finished")
        telemetry.count_tokens((subject.tenant, "tiny", "w0"), Usage(10, 5, 5))
    lives = [lived(number, telemetry) for number in range(MAX_LIVES)]
    for life in lives:
        telemetry.lives.add(life)
    one, bare = lives[0], lived(0, telemetry)
    fields = {name: getattr(bare, name) for name in Life.__struct_fields__}
    route = Route(workers[0], RouteReason.HIT, "cost", 100, 200)
    crew = Crew(fleet, lambda: [], (), telemetry.clock)
    found = {
        "life_us": us(lambda: telemetry.lives.add(Life(**fields)), 100_000),
        "explain_us": us(route.explain, 100_000),
        "spread_us": us(lambda: telemetry.totals.ttft_s.add(one.ended), 100_000),
        "sample_us": us(history.sample, SAMPLES),
        "trees_us": us(lambda: prefix_trees(lives, fleet.serving), 20),
        "tenants_us": us(lambda: tenant_table(telemetry, {}), 20),
        "rows_us": us(lambda: msgspec.json.encode([crew.rows(), history.curves()]), 100),
    }
    print("page:", *(f"{name}={value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
