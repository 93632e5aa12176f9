"""`python -m loadtest analyze LOG`: what the command takes."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from loadtest.analysis.fleets import POLICIES, PREFILL_TOKENS_S, USUAL
from loadtest.analysis.shown import show
from loadtest.analysis.study import Study, Wish
from loadtest.analysis.survey import MAX_BYTES, MAX_REQUESTS, PAGE_TOKENS, Limits
from loadtest.analysis.writing import BYTES_PER_TOKEN, pen_of
from loadtest.errors import LoadTestError

NAME = "analyze"
FEWEST_COLUMNS = 100
USUAL_POLICIES = ",".join(USUAL)


LogFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="JSON lines; may be gzipped.")
]
Model = Annotated[
    str | None, typer.Option(help="A model folder, a .gguf file or the default model's name.")
]
Ratio = Annotated[int, typer.Option(min=1, max=16, help="Of texts, where there is no tokenizer.")]
PageSize = Annotated[int, typer.Option(min=1, max=1024, help="Of blocks.")]
Sizes = Annotated[list[int] | None, typer.Option(min=1, help="Size of a cache; may be repeated.")]
Workers = Annotated[
    str, typer.Option(help="Numbers of workers to simulate, comma-separated; 0: none.")
]
WorkerTokens = Annotated[
    int | None, typer.Option(min=1, help="Size of each worker's cache; default: by the log.")
]
Policies = Annotated[str, typer.Option(help=f"Rules of routing, of {', '.join(POLICIES)}.")]
Prefill = Annotated[
    float, typer.Option(min=1, help="Prompt tokens that a worker computes in a second.")
]
MaxRequests = Annotated[int, typer.Option(min=1, max=5_000_000, help="Only the log's first ones.")]
MaxMib = Annotated[int, typer.Option(min=1, help="Of distinct prompts that are held.")]
ShowText = Annotated[bool, typer.Option("--show-text", help="Show how hot prefixes begin.")]
Out = Annotated[
    Path | None, typer.Option(file_okay=False, help="Folder for analysis.html and .json.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON in place of tables.")]


def run(  # noqa: PLR0913, PLR0917 - one parameter is one option
    log: LogFile,
    tokenizer: Model = None,
    bytes_per_token: Ratio = BYTES_PER_TOKEN,
    page_size: PageSize = PAGE_TOKENS,
    cache_tokens: Sizes = None,
    workers: Workers = "2,4,8",
    worker_tokens: WorkerTokens = None,
    policies: Policies = USUAL_POLICIES,
    prefill_tokens_s: Prefill = PREFILL_TOKENS_S,
    max_requests: MaxRequests = MAX_REQUESTS,
    max_mib: MaxMib = MAX_BYTES >> 20,
    show_text: ShowText = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Say of a log what a prefix cache would have: shared tokens, hits by size, what to mend."""
    try:
        wish = Wish(
            log=log,
            pen=pen_of(tokenizer, bytes_per_token),
            limits=Limits(max_requests, max_mib << 20),
            page_tokens=page_size,
            sizes=tuple(sorted(cache_tokens or ())),
            workers=workers_of(workers),
            policies=policies_of(policies),
            prefill_tokens_s=prefill_tokens_s,
            worker_tokens=worker_tokens,
            show_text=show_text,
        )
        _tell(wish, out, as_json)
    except (LoadTestError, OSError) as error:
        Console(stderr=True).print(f"analyze: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from error


def _tell(wish: Wish, out: Path | None, as_json: bool) -> None:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)  # before minutes of reading are lost
    with Console(stderr=True).status("") as status:
        found = Study(secrets.token_bytes(32), status.update).of(wish)
    told = msgspec.json.format(msgspec.json.encode(found))
    if out is not None:
        from loadtest.analysis.page import page

        (out / "analysis.json").write_bytes(told)
        (out / "analysis.html").write_text(page(found), "utf-8")
    if as_json:
        print(told.decode())
        return
    console = Console()
    if not sys.stdout.isatty():
        console = Console(width=max(console.width, FEWEST_COLUMNS))
    show(found, console)


def workers_of(text: str) -> tuple[int, ...]:
    """The numbers of workers. Raises LoadTestError."""
    words = text.split(",")
    if not all(word.strip().isdigit() and int(word) <= 256 for word in words):
        raise LoadTestError(f"--workers is {text!r}: numbers from 1 to 256, or 0 for none.")
    return tuple(sorted({int(word) for word in words} - {0}))


def policies_of(text: str) -> tuple[str, ...]:
    """The rules of routing. Raises LoadTestError."""
    names = tuple(name.strip() for name in text.split(","))
    wrong = [name for name in names if name not in POLICIES]
    if wrong:
        raise LoadTestError(f"--policies has {wrong[0]!r}: of {', '.join(POLICIES)}.")
    return names
