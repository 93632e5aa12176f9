"""`python -m loadtest chaos`: its options."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.chaos import story
from loadtest.chaos.faults import FAULTS
from loadtest.chaos.fleet import Wish
from loadtest.chaos.run import Shape, measure
from loadtest.errors import LoadTestError
from loadtest.report import show

progress = Console(stderr=True)


def say(text: str) -> None:
    """Tells how far the run is."""
    progress.print(text, markup=False, highlight=False)


def run_chaos(
    minutes: Annotated[float, typer.Option(min=0.1, help="Of faults and load.")] = 10.0,
    workers: Annotated[int, typer.Option(min=2, help="With one thread each.")] = 3,
    seed: Annotated[int, typer.Option(help="Chooses what is asked, and the faults.")] = 0,
    model: Annotated[str, typer.Option(help="What the workers run.")] = "smollm2-135m-instruct",
    only: Annotated[
        list[str] | None, typer.Option(help=f"These faults, of: {', '.join(FAULTS)}.")
    ] = None,
    out: Annotated[Path, typer.Option(help="For chaos.md and its picture.")] = Path("reports"),
) -> None:
    """Throw faults into a fleet under load; nothing may be lost, wrong or left."""
    shape = Shape(minutes, seed, tuple(only or ()))
    try:
        if unknown := set(shape.only) - FAULTS.keys():
            raise LoadTestError(f"fault {min(unknown)!r}: one of {', '.join(FAULTS)}")
        course = asyncio.run(measure(Wish(model, workers), shape, say))
    except LoadTestError as error:
        say(f"loadtest: {error}")
        raise typer.Exit(1) from error
    story.written(course, out)
    show(story.report(course), Console())
    raise typer.Exit(0 if course.is_good else 1)
