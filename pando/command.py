"""The `pando` command: `up` starts a fleet, `check` says if it would run, `tenant` who may ask.

`run` runs a program of a file, `analyze` says what a log of traffic shares, `plan` how much memory
that takes, `warm` asks for declared prefixes after a deploy.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pando import tenant
from pando.analyze import SETTINGS, analyze
from pando.check import Level, findings
from pando.errors import PandoError
from pando.plan import plan
from pando.probe import Wish, probe
from pando.run import run
from pando.sizes import parse_size
from pando.up import Up, UpOptions
from pando.warm import warm

DEFAULT_MODEL = "smollm2-135m-instruct"
MARKS = {Level.OK: "ok", Level.WARNING: "warning", Level.PROBLEM: "problem"}

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
app.add_typer(tenant.app, name="tenant")
app.command()(run)
app.command()(plan)
app.command(context_settings=SETTINGS, add_help_option=False)(analyze)
app.command()(warm)


class PrefixCache(StrEnum):
    """How a worker finds computed prefixes."""

    RADIX = "radix"
    BLOCK = "block"
    OFF = "off"


Model = Annotated[str, typer.Option(help="A model folder, a .gguf file or the default name.")]
NumWorkers = Annotated[int, typer.Option(min=1, max=64, help="Number of workers.")]
Host = Annotated[str, typer.Option(help="The gateway's address.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The gateway's port.")]
Cache = Annotated[PrefixCache, typer.Option(help="How computed prefixes are found again.")]
PageSize = Annotated[int, typer.Option(min=1, max=1024, help="Tokens in a K/V page.")]
KvMemory = Annotated[str, typer.Option(help="Memory for K/V pages, for each worker.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads of each worker; default: cores / workers.")
]
LogFolder = Annotated[
    Path | None, typer.Option(help="Where logs go; default: logs/PORT in the cache folder.")
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show every process's log.")]
WorkerFlag = Annotated[
    list[str] | None, typer.Option(help="A further flag for each worker; may be repeated.")
]
GatewayConfig = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        metavar="FILE",
        help="The gateway's settings (docs/operations.md); the workers here come in addition.",
    ),
]
ShutdownS = Annotated[
    float, typer.Option(min=0.1, help="What running requests get after Ctrl-C, seconds.")
]


@app.command()
def up(  # noqa: PLR0913 - one parameter is one option
    *,
    model: Model = DEFAULT_MODEL,
    workers: NumWorkers = 2,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    prefix_cache: Cache = PrefixCache.RADIX,
    page_size: PageSize = 16,
    kv_memory: KvMemory = "1GiB",
    threads: Threads = None,
    log_folder: LogFolder = None,
    verbose: Verbose = False,
    worker_flag: WorkerFlag = None,
    gateway_config: GatewayConfig = None,
    shutdown_s: ShutdownS = 5.0,
) -> None:
    """Start a gateway and its workers on this machine, until Ctrl-C."""
    console = Console(stderr=True, soft_wrap=True)
    try:
        parse_size(kv_memory)
        options = UpOptions(
            model=model if not Path(model).exists() else str(Path(model).absolute()),
            num_workers=workers,
            host=host,
            port=port,
            prefix_cache=prefix_cache.value,
            page_size=page_size,
            kv_memory=kv_memory,
            threads=threads or max(1, num_cores() // workers),
            log_folder=log_folder or default_log_folder(port),
            verbose=verbose,
            worker_flags=tuple(worker_flag or ()),
            gateway_config=gateway_config,
            shutdown_s=shutdown_s,
        )
        Up(options, console).run()
    except PandoError as error:
        console.print(f"pando up: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from error


@app.command()
def check(model: Model = DEFAULT_MODEL, kv_memory: KvMemory = "1GiB", port: Port = 8000) -> None:
    """Say in sentences whether this machine can run a worker; status 1 when it can't."""
    console = Console(soft_wrap=True)
    try:
        machine = probe(Wish(model, parse_size(kv_memory), port))
    except PandoError as error:
        console.print(f"pando check: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from error
    found = findings(machine)
    for finding in found:
        console.print(f"{MARKS[finding.level]:8} {finding.text}", markup=False, highlight=False)
    if any(finding.level is Level.PROBLEM for finding in found):
        raise typer.Exit(1)


def num_cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_log_folder(port: int) -> Path:
    """Returns `logs/<port>` in `$PANDO_CACHE`, else in `pando` below `$XDG_CACHE_HOME`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("PANDO_CACHE") or Path(home) / "pando"
    return Path(cache) / "logs" / str(port)


def main() -> None:
    """The entry point of the `pando` script."""
    app()


if __name__ == "__main__":
    main()
