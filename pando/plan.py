"""`pando plan`: what memory a model's K/V takes, how many requests fit, and what to set.

The worker's own arithmetic is asked as a program (`worker.model.planner`); here it is told.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pando.errors import PandoError
from pando.sizes import parse_size, readable
from pando.up import ROOT

PROGRAM = ("-m", "worker.model.planner")

Model = Annotated[
    str | None, typer.Option(help="A folder with config.json, a .gguf file or the default name.")
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--gpu-memory", "--memory", help='Of one worker, as "80GiB"; none: what it needs.'
    ),
]
Parameters = Annotated[
    str | None, typer.Option(help='Of the model, as "8030000000" or "8B"; default: by its files.')
]
Layers = Annotated[int | None, typer.Option(help="In place of the model's.")]
KvHeads = Annotated[int | None, typer.Option(help="Heads of keys, not of queries.")]
HeadDim = Annotated[int | None, typer.Option(help="Numbers of one head.")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16; on a CPU float32.")]
KvDtype = Annotated[str, typer.Option(help="auto or int8.")]
Dflash = Annotated[bool, typer.Option("--dflash", help="Sketches of keys are kept.")]
Context = Annotated[int, typer.Option(help="Tokens of the longest request, its answer included.")]
Concurrency = Annotated[int, typer.Option(help="Requests that run together.")]
Shared = Annotated[int, typer.Option(help="Tokens that all requests begin with.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON in place of tables.")]


def plan(  # noqa: PLR0913 - one parameter is one option
    *,
    model: Model = None,
    memory: Memory = None,
    parameters: Parameters = None,
    layers: Layers = None,
    kv_heads: KvHeads = None,
    head_dim: HeadDim = None,
    dtype: Dtype = "bfloat16",
    kv_cache_dtype: KvDtype = "auto",
    dflash: Dflash = False,
    context: Context = 4096,
    concurrency: Concurrency = 16,
    shared_prefix: Shared = 0,
    as_json: AsJson = False,
) -> None:
    """Say what memory requests take, how many fit, and what to set; status 1 on a wrong value."""
    try:
        told = {
            "model": str(Path(model).absolute()) if model and Path(model).exists() else model,
            "memory": None if memory is None else parse_size(memory),
            "parameters": None if parameters is None else count_of(parameters),
            "layers": layers,
            "kv-heads": kv_heads,
            "head-dim": head_dim,
            "dtype": dtype,
            "kv-cache-dtype": kv_cache_dtype,
            "context": context,
            "concurrency": concurrency,
            "shared": shared_prefix,
        }
        found = asked(told, dflash)
    except PandoError as error:
        Console(stderr=True).print(f"pando plan: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from error
    if as_json:
        print(json.dumps(found, indent=2))
        return
    show(found, Console(soft_wrap=True))


def asked(told: dict[str, Any], dflash: bool) -> dict[str, Any]:
    """Returns the worker's plan. Raises PandoError with its sentence."""
    words = [f"--{name}={one}" for name, one in told.items() if one is not None]
    command = [sys.executable, *PROGRAM, *words, *(["--dflash"] if dflash else [])]
    run = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if run.returncode:
        raise PandoError(run.stderr.strip().rpartition("\n")[2] or "the plan could not be made")
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def count_of(text: str) -> int:
    """Returns the number that "8B", "135M" or "8030261248" names. Raises PandoError."""
    units = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    try:
        found = int(float(number) * unit)
    except (ValueError, OverflowError) as error:
        raise PandoError(
            f'parameters is {text!r}: a number, or one with M or B, as "8B".'
        ) from error
    return found


def show(found: dict[str, Any], console: Console) -> None:
    """A table and sentences are printed."""
    model, plan_ = found["model"], found["plan"]
    table = Table(
        "K/V", "bytes of a token", "of the context", "of all requests", title="K/V memory"
    )
    for name, each in plan_["alternatives"].items():
        sizes = (each * plan_["per_request"], each * plan_["needed_tokens"])
        table.add_row(name, f"{each:,}", *map(readable, sizes))
    console.print(table)
    for sentence in sentences(model, plan_):
        console.print(sentence, markup=False, highlight=False)


def sentences(model: dict[str, Any], plan_: dict[str, Any]) -> Iterator[str]:
    """What is needed, what fits, and what to set."""
    yield (
        f"Weights take {readable(plan_['weights_bytes'])} ({model['parameters']:,} numbers in "
        f"{model['dtype']}); a token of K/V {plan_['bytes_per_token']:,} bytes ({model['layers']} "
        f"layers x {model['kv_heads']} K/V heads x {model['head_dim']})."
    )
    yield from _needs(model, plan_)
    if model["windows"]:
        yield (
            f"{len(model['windows'])} of {model['layers']} layers look back "
            f"{model['windows'][0]:,} tokens; kept so, K/V would take "
            f"{readable(plan_['window_bytes'])}. The worker keeps whole contexts."
        )
    if plan_["fits"] is not None:
        yield from _fits(model, plan_)


def _needs(model: dict[str, Any], plan_: dict[str, Any]) -> Iterator[str]:
    shared = model["shared"]
    told = f", of which {shared:,} are shared and held once" if shared else ""
    yield (
        f"{model['concurrency']:,} requests of {model['context']:,} tokens{told} need "
        f"{readable(plan_['needed_kv_bytes'])} of K/V, and {readable(plan_['needed_bytes'])} in "
        "all (a tenth for what else runs)."
    )
    if shared:
        yield f"Without sharing it would be {readable(plan_['unshared_kv_bytes'])} of K/V."


def _fits(model: dict[str, Any], plan_: dict[str, Any]) -> Iterator[str]:
    memory = readable(model["memory"])
    if not plan_["tokens"]:
        yield f"{memory} can't hold the weights and a page: take more memory or a smaller model."
        return
    word = "fit" if plan_["fits"] else "do not fit"
    yield (
        f"They {word} {memory}, which hold {plan_['tokens']:,} tokens: {plan_['requests']:,} such "
        f"requests together ({plan_['unshared_requests']:,} if nothing is shared)."
    )
    if not plan_["requests"]:
        return
    yield (
        f"Set kv_memory: {plan_['kv_memory'] // 1024**2}MiB, "
        f"max_running_sequences: {plan_['max_running_sequences']}, "
        f"max_cached_tokens: {plan_['max_cached_tokens']} (a fifth left)."
    )
