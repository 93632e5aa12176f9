"""`python -m loadtest run`, `report`, `workloads`, and the two that start fleets of their own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from loadtest.errors import LoadTestError
from loadtest.fleet import FleetWish, started
from loadtest.load import kinds, ladder, runs, scenarios
from loadtest.load import options as o
from loadtest.load.asked import Asked, keys_of
from loadtest.load.figures import Slo
from loadtest.load.samples import read
from loadtest.load.target import Target, first_model
from loadtest.report import show

KEY_VARIABLE = "PANDO_API_KEY"
DEFAULT_MODEL = "smollm2-135m-instruct"
REPORTS = Path("reports/load")

progress = Console(stderr=True)


def mount(app: typer.Typer) -> None:
    """The command line has these commands."""
    app.command("run")(run)
    app.command("report")(report)
    app.command("workloads")(workloads)
    app.command(ladder.NAME)(run_ladder)
    app.command(scenarios.NAME)(run_scenarios)


def run(
    workload: o.Workload,
    settings: o.Settings = None,
    url: o.Url = None,
    compare_url: o.CompareUrl = None,
    model: o.Model = None,
    keys: o.Keys = None,
    prefix_cache: o.PrefixCache = "radix",
    compare_prefix_cache: o.ComparePrefixCache = None,
    workers: o.Workers = 1,
    rate: o.Rate = None,
    ramp: o.Ramp = None,
    burstiness: o.Burstiness = 1.0,
    concurrency: o.Concurrency = None,
    speed: o.Speed = None,
    think_s: o.ThinkS = 0.0,
    live_answers: o.LiveAnswers = False,
    ignore_eos: o.IgnoreEos = False,
    rounds: o.Rounds = 1,
    seed: o.Seed = 0,
    slo_ttft: o.SloTtft = None,
    slo_tpot: o.SloTpot = None,
    out: o.Out = REPORTS,
) -> None:
    """Send a workload to any server with OpenAI's API, or to two in turn, and report on it."""
    asked = msgspec.convert(locals(), Asked)
    try:
        kind, course = kinds.chosen(asked.workload, asked.settings or []), asked.course()
        asked.out.mkdir(parents=True, exist_ok=True)  # before hours of load are lost
        with serving(asked) as targets:
            samples = asyncio.run(runs.sent(kind, targets, course, _say))
    except (LoadTestError, OSError) as error:
        refuse(error)
    head = asked.head({side: target.url for side, target in targets.items()})
    found = runs.keep(asked.out, head, samples, asked.slo)
    _say(f"samples, figures and the page are in {asked.out}")
    show(runs.report(found), Console())


def report(
    samples: o.Samples,
    slo_ttft: o.SloTtft = None,
    slo_tpot: o.SloTpot = None,
    out: o.Out = REPORTS,
) -> None:
    """Tell an earlier run's raw samples again, under another SLO for instance."""
    try:
        recording = read(samples)
    except LoadTestError as error:
        refuse(error)
    found = runs.keep(out, recording.head, recording.samples, Slo(slo_ttft, slo_tpot))
    show(runs.report(found), Console())


def workloads() -> None:
    """Show every workload of `run` with its parameters and their defaults."""
    table = Table("workload", "parameters", title="workloads", show_lines=True)
    for name in kinds.KINDS:
        parameters = kinds.parameters(name).items()
        table.add_row(name, "  ".join(f"{key}={value}" for key, value in parameters))
    Console().print(table)


def run_ladder(
    model: o.FleetModel = DEFAULT_MODEL, quick: o.Quick = False, picture: o.Picture = None
) -> None:
    """Show what radix, dflash and grouping by prefix add, one upon the other (minutes)."""
    try:
        rungs = ladder.measure(model, ladder.QUICK if quick else ladder.Shape(), _say)
    except LoadTestError as error:
        refuse(error)
    if picture is not None:
        ladder.draw(rungs, picture)
    show(ladder.report(rungs), Console())


def run_scenarios(model: o.FleetModel = DEFAULT_MODEL, quick: o.Quick = False) -> None:
    """Send agents' and short traffic to each cache: which one wins, and what follows."""
    shape = scenarios.quick() if quick else scenarios.Shape()
    try:
        outcomes = scenarios.measure(model, shape, _say)
    except LoadTestError as error:
        refuse(error)
    _say(scenarios.advice(outcomes))
    show(scenarios.report(outcomes), Console())


@contextmanager
def serving(asked: Asked) -> Iterator[dict[str, Target]]:
    """Yields the targets by side; fleets that were started end with the context."""
    keys = keys_of(asked.keys or [], os.environ.get(KEY_VARIABLE, ""))
    with ExitStack() as stack:
        urls = {"A": asked.url or stack.enter_context(_fleet(asked, asked.prefix_cache))}
        if asked.compare_url:
            urls["B"] = asked.compare_url
        elif asked.compare_prefix_cache:
            urls["B"] = stack.enter_context(_fleet(asked, asked.compare_prefix_cache))
        yield {side: _target(asked, url, keys) for side, url in urls.items()}


@contextmanager
def _fleet(asked: Asked, cache: str) -> Iterator[str]:
    wish = FleetWish(asked.model or DEFAULT_MODEL, cache, asked.workers)
    _say(f"starting a fleet with prefix cache {cache}")
    with started(wish) as url:
        yield url


def _target(asked: Asked, url: str, keys: dict[str, str]) -> Target:
    """Of a fleet that was started, the model goes by the name that it serves."""
    is_ours = url not in (asked.url, asked.compare_url)
    bare = Target(url, "", keys)
    some_key = bare.headers(next(iter(keys), ""))
    model = None if is_ours else asked.model
    return Target(url, model or first_model(url, some_key), keys, asked.ignore_eos)


def refuse(error: Exception) -> NoReturn:
    """The command ends with status 1 and a sentence."""
    progress.print(f"loadtest: {error}", markup=False, highlight=False)
    raise typer.Exit(1) from error


def _say(text: str) -> None:
    progress.print(text, highlight=False, markup=False)
