"""`python -m loadtest WORKLOAD`: runs it and ends with one line of figures."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Console

from loadtest.client import Client
from loadtest.errors import LoadTestError
from loadtest.fleet import FleetWish, started
from loadtest.report import show
from loadtest.workloads import shared_prefix
from loadtest.workloads.shared_prefix import Outcome, Shape

CACHES = ("radix", "block", "off")
KEY_VARIABLE = "PANDO_API_KEY"

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
progress = Console(stderr=True)


@app.callback()
def workload() -> None:
    """Runs a workload over HTTP and ends with one line of figures."""


@app.command(shared_prefix.NAME)
def run_shared_prefix(
    url: Annotated[
        str | None, typer.Option(help="A running gateway; default: one is started per cache kind.")
    ] = None,
    model: Annotated[str, typer.Option(help="For a started fleet.")] = "smollm2-135m-instruct",
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
        progress.print(f"loadtest: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from error
    show(shared_prefix.report(outcomes), Console())


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
