"""`pando run`: runs a program of a file, prints its values, draws its graph."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pando.errors import PandoError
from pando.programs.function import Program
from pando.programs.result import Result

Target = Annotated[
    str, typer.Argument(metavar="FILE.py[:FUNCTION]", help="The file, and which of its programs.")
]
Argument = Annotated[
    list[str] | None,
    typer.Option("--arg", metavar="NAME=VALUE", help="An argument of the function; repeat it."),
]
Trace = Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the graph there.")]
BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", "--url", help="The gateway; default: PANDO_BASE_URL, else 8000."),
]
Model = Annotated[
    str | None, typer.Option(help="The model; default: PANDO_MODEL, else the only one.")
]
Seed = Annotated[int | None, typer.Option(help="Of all nodes that name none.")]
Temperature = Annotated[float | None, typer.Option(help="Of all nodes that name none.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print values, nodes and usage as JSON.")]


def run(  # noqa: PLR0913 - one parameter is one option
    target: Target,
    *,
    arg: Argument = None,
    trace: Trace = None,
    base_url: BaseUrl = None,
    model: Model = None,
    seed: Seed = None,
    temperature: Temperature = None,
    as_json: AsJson = False,
) -> None:
    """Run a program of a file and print its values; the API's key is PANDO_API_KEY."""
    settings = {"base_url": base_url, "model": model, "seed": seed, "temperature": temperature}
    try:
        chosen = load(target)
        result = chosen.run(**arguments(chosen, arg or ()), **settings)
        if trace is not None:
            drawn(result, trace)
    except PandoError as error:
        typer.echo(f"pando run: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(as_text(result) if not as_json else json.dumps(record(result), indent=2))


def load(target: str) -> Program:
    """The program that `FILE.py` has, or `FILE.py:NAME`. Raises PandoError."""
    name, _, wanted = target.partition(":") if ":" in Path(target).name else (target, "", "")
    path = Path(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PandoError(f"{name!r} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PandoError(f"{name} can't be imported: {type(error).__name__}: {error}") from error
    found = {key: one for key, one in vars(module).items() if isinstance(one, Program)}
    if wanted in found:
        return found[wanted]
    if wanted or len(found) != 1:
        listed = ", ".join(found) or "none"
        raise PandoError(f"{name} has these programs: {listed}. Name one as {name}:NAME.")
    return next(iter(found.values()))


def arguments(chosen: Program, given: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` each, read as what the parameter's annotation or default is."""
    parameters = inspect.signature(chosen).parameters
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in list(parameters)[1:]:
            listed = ", ".join(list(parameters)[1:]) or "none"
            raise PandoError(f"--arg {text!r}: write NAME=VALUE, NAME one of: {listed}.")
        found[name] = _read(name, value, parameters[name])
    return found


def _read(name: str, value: str, parameter: inspect.Parameter) -> Any:
    """Text stays text unless the function says what else it takes."""
    has_default = parameter.default is not inspect.Parameter.empty
    wish = parameter.annotation
    if wish is inspect.Parameter.empty:
        wish = type(parameter.default).__name__ if has_default else "str"
    kind = wish if isinstance(wish, str) else getattr(wish, "__name__", str(wish))
    if kind in ("str", "NoneType"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise PandoError(f"--arg {name}: {value!r} is no {kind}; write it as JSON.") from None


def drawn(result: Result, path: Path) -> None:
    """The picture is there. Raises PandoError."""
    try:
        result.graph_svg(path)
    except OSError as error:
        raise PandoError(f"--trace {path} can't be written: {error.strerror}.") from error


def record(result: Result) -> dict[str, Any]:
    """Values, nodes and usage for JSON."""
    nodes = [{**asdict(node), "seconds": node.seconds} for node in result.nodes]
    return {
        "variables": dict(result.variables),
        "text": result.text(),
        "nodes": nodes,
        "usage": asdict(result.usage),
        "session": result.needs,
    }


def as_text(result: Result) -> str:
    """Values by name, the nodes' table, and the sum."""
    values = [
        f"{name} = {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in result.variables.items()
    ]
    usage = result.usage
    requests = "1 request" if usage.requests == 1 else f"{usage.requests} requests"
    total = (
        f"{requests}, {usage.prompt_tokens} prompt tokens ({usage.cached_tokens} of them cached), "
        f"{usage.completion_tokens} generated"
    )
    why = [f"Ran as a session: {result.needs}"] if result.needs else []
    return "\n".join([*values, "", result.trace(), "", total, *why])
