"""`python -m loadtest doctor`: what the command takes, and what it shows."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.errors import LoadTestError
from loadtest.faults import fleet as fleet_faults
from loadtest.faults import real
from loadtest.faults.planted import Case, cases
from loadtest.report import show
from loadtest.workloads import doctor, doctor_beside, doctor_cost, doctor_fleet

# What a real fleet is tried with: nothing that takes a second worker or fills a cache.
FLEET_KINDS = ("timestamp", "whitespace", "tool_order", "history_truncated", "never_seen", "hit")


def run(
    count: Annotated[int, typer.Option("--cases", min=1, help="Of each kind of fault.")] = 50,
    seed: Annotated[int, typer.Option(help="Chooses texts and values.")] = 0,
    traces: Annotated[
        Path | None, typer.Option(help="A folder with *_sessions.jsonl.gz to replay, too.")
    ] = None,
    fleet: Annotated[
        str, typer.Option(help="A model: a worker that runs it, in place of fake ones.")
    ] = "",
    beside: Annotated[
        int, typer.Option(min=0, help="Turns of a gateway with and one without the doctor.")
    ] = 0,
    tell: Annotated[int, typer.Option(help="Cases named wrong that are shown.")] = 5,
) -> None:
    """Plant faults in prompts and in the fleet; the gateway's doctor should name each."""
    if fleet:
        planted = cases(count, seed, FLEET_KINDS)
    else:
        planted = cases(count, seed) + fleet_faults.cases(count, seed)
    if traces is not None:
        planted += list(_recorded(traces, seed))
    console = Console(stderr=True)
    try:
        with doctor_fleet.serving_fleet(fleet) if fleet else doctor_fleet.serving() as target:
            outcome = asyncio.run(doctor.judge(target, planted))
    except LoadTestError as error:
        console.print(f"loadtest: {error}", highlight=False, markup=False)
        sys.exit(2)
    for case, header in outcome.wrong[:tell]:
        console.print(f"{case.kind}: {header}", highlight=False, markup=False)
        console.print(f"    {case.judged.body!s:.300}", highlight=False, markup=False)
    report = doctor.report(outcome)
    costs = asdict(doctor_cost.measure(seed))
    if beside:
        costs |= asdict(doctor_beside.measure(beside))
    show(replace(report, summary={**report.summary, **costs}), Console())


def _recorded(folder: Path, seed: int, limit: int = 200, num_faulty: int = 20) -> Iterator[Case]:
    """Every file's sessions as they were, and faults in the first ones."""
    rng, tenants = random.Random(seed), iter(doctor_fleet.REAL_TENANTS)
    for path in sorted(folder.glob("*_sessions.jsonl.gz")):
        try:
            found = real.sessions(path, limit)
        except KeyError:
            continue  # another form: blocks without texts
        name = path.name.removesuffix("_sessions.jsonl.gz")
        yield from (real.clean(one, f"{name} as it was") for one in found if one.turns)
        for one in found[:num_faulty]:
            yield from real.planted(one, rng, tenants)
