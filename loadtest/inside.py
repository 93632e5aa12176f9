"""Commands of `python -m loadtest` that start no fleet: what is inside a worker, and its peers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from loadtest.errors import LoadTestError
from loadtest.peers.servers import Wish, model_folder
from loadtest.report import show
from loadtest.workloads import caches, engines, masks, scheduler
from worker.dflash import Dflash, Mode
from worker.order import ORDERS

DEFAULT = "smollm2-135m-instruct"
progress = Console(stderr=True)


def mount(app: typer.Typer) -> None:
    """The command line has these commands."""
    app.command("dflash")(run_dflash)
    app.command(engines.NAME)(run_engines)
    app.command(caches.NAME)(run_caches)
    app.command(scheduler.NAME)(run_scheduler)
    app.command(masks.NAME)(run_masks)


def run_dflash(
    model: Annotated[str, typer.Option(help="Whose attention is compared.")] = DEFAULT,
    longest: Annotated[int, typer.Option(min=512, help="Tokens of the longest context.")] = 32768,
    budget: Annotated[int, typer.Option(min=80, help="Tokens that dflash reads.")] = 2048,
    share: Annotated[float, typer.Option(min=0, max=1, help="Or this part.")] = 0.125,
    threads: Annotated[int, typer.Option(min=1, help="Of the kernels.")] = 2,
    picture: Annotated[Path | None, typer.Option(help="All figures, as SVG.")] = None,
) -> None:
    """Attend over long contexts whole, in part, and in part with K/V in eight bits."""
    from loadtest.workloads import dflash  # the only one with tensors: torch takes seconds

    rule = Dflash(Mode.ON, budget, share)
    shape = dflash.Shape(longest, rule, threads)
    try:
        folder = model_folder(model)
    except LoadTestError as error:
        _refuse(error)
    points = dflash.measure(Path(folder), shape)
    if picture is not None:
        dflash.draw(points, picture)
    progress.print(dflash.advice(points, shape))
    show(dflash.report(points, shape), Console())


def run_engines(
    names: Annotated[
        str, typer.Option("--engines", help=f"Comma-separated, of {', '.join(engines.ENGINES)}.")
    ] = ",".join(engines.ENGINES),
    model: Annotated[str, typer.Option(help="What all engines run.")] = DEFAULT,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each engine.")] = 2,
    vllm_python: Annotated[str, typer.Option(help="A Python that has vLLM.")] = sys.executable,
    llama_python: Annotated[str, typer.Option(help="One that has xllamacpp.")] = sys.executable,
    rounds: Annotated[int, typer.Option(min=1, help="In turn; the best figures count.")] = 1,
    quick: Annotated[bool, typer.Option(help="Few tokens: does everything run?")] = False,
) -> None:
    """Decode by batch and share a prefix: our fleet and its peers on the same weights, in turn."""
    pythons = {"vllm_cpu": vllm_python, "llama_cpp": llama_python}
    wishes = {
        name: Wish(model, threads, pythons.get(name, sys.executable)) for name in names.split(",")
    }
    try:
        outcomes = engines.measure_all(
            wishes, engines.QUICK if quick else engines.Shape(), rounds, _say
        )
    except LoadTestError as error:
        _refuse(error)
    show(engines.report(outcomes), Console())


def run_caches(
    prompts: Annotated[int, typer.Option(min=40, help="Prompts in the cache.")] = 1000,
    prompt_tokens: Annotated[int, typer.Option(min=64, help="Tokens of each.")] = 4096,
    page_size: Annotated[int, typer.Option(min=1, help="Tokens of a page.")] = 16,
) -> None:
    """Time the caches' own operations, without a model."""
    stem = prompt_tokens * 3 // 4
    shape = caches.Shape(prompts, prompt_tokens, stem, page_size=page_size)
    outcomes = {name: caches.measure(name, shape) for name in caches.CACHES}
    show(caches.report(outcomes, shape), Console())


def run_scheduler(
    model: Annotated[
        str, typer.Option(help="Whose step the decisions are held against; empty: none.")
    ] = DEFAULT,
    groups: Annotated[int, typer.Option(min=2, help="What shares a prefix.")] = 24,
    members: Annotated[int, typer.Option(min=4, help="Requests of each group.")] = 24,
    seed: Annotated[int, typer.Option(help="Chooses the traffic.")] = 0,
    picture: Annotated[Path | None, typer.Option(help="TTFT over queue length, as SVG.")] = None,
) -> None:
    """Compare orders of admission on a worker's own scheduler, in virtual time."""
    shape = scheduler.Shape(groups, members, seed=seed)
    outcomes = [scheduler.measure(mix, order, shape) for mix in scheduler.MIXES for order in ORDERS]
    own = scheduler.own_cost(model or None)
    show(scheduler.report(outcomes, own), Console())
    if picture is not None:
        scheduler.draw(shape, picture)


def run_masks(
    model: Annotated[str, typer.Option(help="Whose vocabulary.")] = DEFAULT,
    walks: Annotated[int, typer.Option(min=1, help="Through each language.")] = 40,
    seed: Annotated[int, typer.Option(help="Chooses the tokens.")] = 0,
    hostile: Annotated[bool, typer.Option(help="Also run the model beside one.")] = True,
) -> None:
    """Time masks over a real vocabulary, check what they let through, and run a hostile grammar."""
    shape = masks.Shape(walks, seed=seed)
    outcomes = masks.measure(model, shape)
    ratio = masks.measure_hostile(model, shape) if hostile else None
    show(masks.report(outcomes, ratio), Console())


def _say(text: str) -> None:
    progress.print(text, markup=False, highlight=False)


def _refuse(error: Exception) -> NoReturn:
    _say(f"loadtest: {error}")
    raise typer.Exit(1) from error
