"""`python -m loadtest WORKLOAD`: runs it and ends with one line of figures."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import httpx
import typer
from rich.console import Console

from loadtest import inside
from loadtest.analysis import command as analyze
from loadtest.benchmarks.command import run_bench
from loadtest.chaos.command import run_chaos
from loadtest.client import Client
from loadtest.errors import LoadTestError
from loadtest.fleet import FleetWish, started
from loadtest.load.command import mount
from loadtest.parts import PartsWish, running
from loadtest.peers.routers import ROUTERS
from loadtest.peers.servers import Wish
from loadtest.report import show
from loadtest.workloads import (
    doctor,
    doctor_run,
    failover,
    fan_out,
    isolation,
    overhead,
    program,
    prompt_logprobs,
    rerank,
    routing,
    shared_prefix,
    tenants,
)
from loadtest.workloads.shared_prefix import Outcome, Shape
from pando.up import ROOT

CACHES = ("radix", "block", "off")
KEY_VARIABLE = "PANDO_API_KEY"
DEFAULT = "smollm2-135m-instruct"
TRACES = ROOT / "loadtest" / "data"

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
progress = Console(stderr=True)
app.command("chaos")(run_chaos)
app.command("bench")(run_bench)
mount(app)
inside.mount(app)


@app.callback()
def workload() -> None:
    """Runs a workload over HTTP and ends with one line of figures."""


@app.command(shared_prefix.NAME)
def run_shared_prefix(
    url: Annotated[
        str | None, typer.Option(help="A running gateway; default: one is started per cache kind.")
    ] = None,
    model: Annotated[str, typer.Option(help="For a started fleet.")] = DEFAULT,
    prefix_tokens: Annotated[int, typer.Option(min=1, help="Tokens that are shared.")] = 1500,
    own_tokens: Annotated[int, typer.Option(min=1, help="Tokens that aren't.")] = 32,
    prefixes: Annotated[int, typer.Option(min=1, help="Prefixes; medians are shown.")] = 5,
    seed: Annotated[int, typer.Option(help="Chooses the tokens.")] = 0,
) -> None:
    """Send pairs of prompts with a long common prefix; the second one should cost little."""
    shape = Shape(prefix_tokens, own_tokens, prefixes, seed)
    try:
        outcomes = {"fleet": _measured(url, shape)} if url else _measured_all(model, shape)
    except LoadTestError as error:
        _refuse(error)
    show(shared_prefix.report(outcomes), Console())


@app.command(fan_out.NAME)
def run_fan_out(
    names: Annotated[
        str,
        typer.Option(
            "--engines", help=f"Comma-separated, in order, of {', '.join(fan_out.ENGINES)}."
        ),
    ] = "pando",
    model: Annotated[str, typer.Option(help="What all engines run.")] = DEFAULT,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each engine.")] = 2,
    vllm_python: Annotated[str, typer.Option(help="A Python that has vLLM.")] = sys.executable,
    llama_python: Annotated[str, typer.Option(help="One that has xllamacpp.")] = sys.executable,
    requests: Annotated[int, typer.Option(min=1, help="Sent together.")] = 32,
    prefix_tokens: Annotated[int, typer.Option(min=1, help="Tokens that are shared.")] = 1500,
    own_tokens: Annotated[int, typer.Option(min=1, help="Tokens that aren't.")] = 32,
    new_tokens: Annotated[int, typer.Option(min=1, help="Tokens made for each.")] = 32,
) -> None:
    """Send many requests with one long prefix at once, to our fleet and to peers, one by one."""
    shape = fan_out.Shape(requests, prefix_tokens, own_tokens, new_tokens)
    outcomes = {}
    try:
        for name in names.split(","):
            if name not in fan_out.ENGINES:
                raise LoadTestError(f"engine {name!r} is none of {', '.join(fan_out.ENGINES)}")
            own = {"vllm": vllm_python, "llama_cpp": llama_python}
            python = own.get(name, sys.executable)
            with progress.status(f"Engine {name}"):
                outcomes[name] = fan_out.measure(name, Wish(model, threads, python), shape)
    except LoadTestError as error:
        _refuse(error)
    show(fan_out.report(outcomes), Console())


@app.command(isolation.NAME)
def run_isolation(
    model: Annotated[
        str, typer.Option(help="What the worker of the timing attack runs; empty: no attack.")
    ] = DEFAULT,
    rounds: Annotated[int, typer.Option(min=20, help="Guesses of each spy.")] = 600,
    seed: Annotated[int, typer.Option(help="Chooses the traffic.")] = 0,
) -> None:
    """Flood a worker beside quiet tenants, and try to find out what they have sent."""
    shape = isolation.Shape(rounds=rounds, seed=seed)
    flooded = {name: isolation.measure_flood(name, shape) for name in isolation.MEMBERS}
    try:
        timing = isolation.measure_timing(model, shape, _say) if model else {}
    except LoadTestError as error:
        _refuse(error)
    show(isolation.report(flooded, timing), Console())


@app.command(prompt_logprobs.NAME)
def run_prompt_logprobs(
    model: Annotated[str, typer.Option(help="For the fleet.")] = DEFAULT,
    prompt_tokens: Annotated[int, typer.Option(min=2, help="Tokens of each prompt.")] = 1000,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts; medians are shown.")] = 5,
    seed: Annotated[int, typer.Option(help="Chooses the tokens.")] = 0,
) -> None:
    """Score prompts twice; the second time their logprobs should come from the cache."""
    shape = prompt_logprobs.Shape(prompt_tokens, prompts, seed)
    try:
        with progress.status("Scoring"), started(FleetWish(model, "radix")) as url:
            pairs = prompt_logprobs.measure(url, Client(url).first_model(), shape)
    except LoadTestError as error:
        _refuse(error)
    show(prompt_logprobs.report(pairs, shape), Console())


@app.command(program.NAME)
def run_program(
    branches: Annotated[int, typer.Option(min=1, help="Of the fork.")] = 8,
    words: Annotated[int, typer.Option(min=1, help="Of the shared text.")] = 400,
    rounds: Annotated[int, typer.Option(min=1, help="Medians are shown.")] = 5,
    delay_ms: Annotated[float, typer.Option(min=0, help="Of the network, each way.")] = 5.0,
    model: Annotated[str, typer.Option(help="For the started fleets.")] = DEFAULT,
) -> None:
    """Run a program in one request, and its steps as single calls, with and without a cache."""
    shape = program.Shape(branches, words, rounds=rounds, delay_s=delay_ms / 1000)
    try:
        with (
            started(FleetWish(model, "radix")) as url,
            started(FleetWish(model, "off")) as bare,
            progress.status("Rounds"),
        ):
            urls = dict(zip(program.ARMS, (url, url, bare), strict=True))
            outcomes = asyncio.run(program.measure(urls, Client(url).first_model(), shape))
    except LoadTestError as error:
        _refuse(error)
    show(program.report(outcomes), Console())


@app.command(rerank.NAME)
def run_rerank(
    model: Annotated[str, typer.Option(help="What the workers run.")] = DEFAULT,
    documents: Annotated[int, typer.Option(min=1, help="Of each query.")] = 32,
    query_words: Annotated[int, typer.Option(min=1, help="Of the query.")] = 430,
    document_words: Annotated[int, typer.Option(min=1, help="Of each document.")] = 40,
    queries: Annotated[int, typer.Option(min=1, help="Requests; medians are shown.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="Of the worker.")] = 2,
) -> None:
    """Score a query's documents, with a cache and without: how much sooner, and how equal."""
    shape = rerank.Shape(documents, query_words, document_words, queries)
    outcomes = {}
    try:
        for cache in ("radix", "off"):
            wish = PartsWish(model, 1, threads=threads, worker_flags=rerank.flags(cache))
            with progress.status(f"Prefix cache {cache}"), running(wish) as parts:
                name = Client(parts.urls[0]).first_model()
                outcomes[cache] = rerank.measure(parts.urls[0], name, shape)
    except LoadTestError as error:
        _refuse(error)
    show(rerank.report(outcomes, shape), Console())


@app.command(failover.NAME)
def run_failover(
    model: Annotated[str, typer.Option(help="What the workers run.")] = DEFAULT,
    workers: Annotated[int, typer.Option(min=2, help="Workers, of which one is lost.")] = 3,
    streams: Annotated[int, typer.Option(min=1, help="Live streams.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Losses.")] = 20,
    new_tokens: Annotated[int, typer.Option(min=16, help="Tokens of each choice.")] = 48,
    loss: Annotated[
        failover.Loss, typer.Option(help="kill: -9; leave: SIGTERM.")
    ] = failover.Loss.KILL,
) -> None:
    """Lose a worker under live streams, again and again; their clients should not notice."""
    shape = failover.Shape(streams, rounds, new_tokens, loss)
    flags = ("--drain-s", "0.5") if loss is failover.Loss.LEAVE else ()
    try:
        with running(PartsWish(model, workers, worker_flags=flags)) as parts:
            outcome = asyncio.run(failover.measure(parts, shape, _say))
        told = failover.report(outcome)
    except (LoadTestError, httpx.HTTPError) as error:
        _refuse(error)
    show(told, Console())


app.command(doctor.NAME)(doctor_run.run)
app.command(analyze.NAME)(analyze.run)


@app.command(overhead.NAME)
def run_overhead(
    smg: Annotated[str, typer.Option(help="SMG's command, from a venv of its own.")] = "smg",
    routers: Annotated[
        str, typer.Option(help=f"Comma-separated, of {', '.join(ROUTERS)}.")
    ] = "pando,stack,pando-http,smg,direct",
    seconds: Annotated[float, typer.Option(min=1, help="Of each load.")] = 5.0,
    rounds: Annotated[int, typer.Option(min=1, help="The best one counts.")] = 3,
    prefixes: Annotated[
        int, typer.Option(min=0, help="Also route so many distinct ones: does memory grow?")
    ] = 0,
) -> None:
    """Put a router before workers that answer at once: what it costs by itself."""
    wanted = tuple(routers.split(","))
    unknown = set(wanted) - ROUTERS.keys()
    try:
        if unknown:
            raise LoadTestError(f"router {min(unknown)!r}: one of {', '.join(ROUTERS)}")
        shape = overhead.Shape(seconds, rounds, shutil.which(smg) or smg, wanted)
        costs = overhead.measure(shape, _say)
    except LoadTestError as error:
        _refuse(error)
    grown = overhead.growth(prefixes) if prefixes else None
    show(overhead.report(costs, overhead.decisions(), grown), Console())


@app.command(routing.NAME)
def run_routing(
    traces: Annotated[Path, typer.Option(help="Folder of the recorded traffic.")] = TRACES,
    quick: Annotated[bool, typer.Option(help="The beginning of every trace only.")] = False,
    gateways: Annotated[int, typer.Option(min=2, help="Of the run with many.")] = 8,
    simulate: Annotated[bool, typer.Option(help="No processes: the router by itself.")] = False,
) -> None:
    """Replay recorded traffic through real gateways: hits against one big cache, even work."""
    plan = routing.Plan(traces, quick, gateways, simulate)
    try:
        outcomes = routing.measure(plan, _say)
    except (LoadTestError, OSError) as error:
        _refuse(error)
    show(routing.report(outcomes), Console())


@app.command(tenants.NAME)
def run_tenants(
    seconds: Annotated[float, typer.Option(min=2, help="Of each measurement.")] = 8.0,
    gateways: Annotated[int, typer.Option(min=2, help="That share one limit.")] = 4,
    burst: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 1000,
    limit: Annotated[int, typer.Option(min=1, help="Requests a minute that may pass.")] = 100,
) -> None:
    """Tenants beside one another: fair shares, a noisy neighbour, one limit over many gateways."""
    shape = tenants.Shape(seconds, gateways, burst, limit)
    try:
        outcome = asyncio.run(tenants.measure(shape, _say))
    except LoadTestError as error:
        _refuse(error)
    show(tenants.report(outcome), Console())


def _say(text: str) -> None:
    progress.print(text, highlight=False)


def _refuse(error: Exception) -> NoReturn:
    progress.print(f"loadtest: {error}", markup=False, highlight=False)
    raise typer.Exit(1) from error


def _measured_all(model: str, shape: Shape) -> dict[str, Outcome]:
    outcomes = {}
    for cache in CACHES:
        with progress.status(f"Prefix cache {cache}"), started(FleetWish(model, cache)) as url:
            outcomes[cache] = _measured(url, shape)
    return outcomes


def _measured(url: str, shape: Shape) -> Outcome:
    client = Client(url, os.environ.get(KEY_VARIABLE, ""))
    return shared_prefix.measure(client, client.first_model(), shape)


if __name__ == "__main__":
    app()
