"""The command line's options: their types and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Workload = Annotated[str, typer.Argument(help="See `python -m loadtest workloads`.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="One of its parameters, as turns=3; repeatable.")
]
Url = Annotated[
    str | None, typer.Option(help="A server with OpenAI's API; default: a fleet is started.")
]
CompareUrl = Annotated[str | None, typer.Option(help="A second one, in turn with the first.")]
Model = Annotated[str | None, typer.Option(help="Its name there; default: the first one served.")]
Keys = Annotated[
    list[str] | None, typer.Option("--key", help="TENANT=KEY; =KEY is everybody's; repeatable.")
]
PrefixCache = Annotated[str, typer.Option(help="Of a started fleet.")]
ComparePrefixCache = Annotated[
    str | None, typer.Option(help="Of a second started fleet, in turn with the first.")
]
Workers = Annotated[int, typer.Option(min=1, help="Of a started fleet.")]
Rate = Annotated[float | None, typer.Option(min=1e-6, help="Conversations begun per second.")]
Ramp = Annotated[str | None, typer.Option(help="FROM:TO, a rate that changes evenly.")]
Burstiness = Annotated[
    float, typer.Option(min=0.01, help="1: Poisson; below: bursts; above: more even.")
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Conversations at a time, in place of a rate.")
]
Speed = Annotated[
    float | None, typer.Option(min=1e-6, help="At recorded times, so many times as fast.")
]
ThinkS = Annotated[float, typer.Option(min=0, help="Mean pause between two turns, seconds.")]
LiveAnswers = Annotated[bool, typer.Option(help="What the model said goes into later turns.")]
IgnoreEos = Annotated[
    bool, typer.Option(help="Ask for all output tokens; not every server knows it.")
]
Rounds = Annotated[int, typer.Option(min=1, help="Each has prompts of its own.")]
Seed = Annotated[int, typer.Option(help="Chooses prompts, arrivals and pauses.")]
SloTtft = Annotated[float | None, typer.Option(min=0, help="Seconds to the first token.")]
SloTpot = Annotated[float | None, typer.Option(min=0, help="Seconds per further token.")]
Out = Annotated[Path, typer.Option(help="Folder for samples, figures, pictures and the page.")]
Samples = Annotated[Path, typer.Argument(help="samples.jsonl of an earlier run.")]
Quick = Annotated[bool, typer.Option(help="Little traffic: does everything run?")]
FleetModel = Annotated[str, typer.Option(help="What the workers run.")]
Picture = Annotated[Path | None, typer.Option(help="All figures, as SVG.")]
