"""`pando warm`: asks for declared prefixes after a deploy, so that caches have them early.

Each goes through the gateway, which sends it where clients' requests with that beginning will go;
it is waited for, and asked for again to see that it comes from a cache.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from pando.errors import PandoError, WarmFailed
from pando.warm_file import Declared, read_prefixes

DEFAULT_URL = "http://127.0.0.1:8000"
_TIMEOUT_S = 600.0
_PAUSE_S = 1.0
_UNAVAILABLE = 503
# A fall below the last run by more than this is told.
_MARGIN = 0.01

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="Prefixes: YAML, JSON, or a JSON object per line.")
]
Url = Annotated[
    str | None,
    typer.Option("--url", "--base-url", help="The gateway; default: PANDO_BASE_URL, else 8000."),
]
Model = Annotated[
    str | None, typer.Option(help="For prefixes that name none; default: the only one served.")
]
Least = Annotated[
    float, typer.Option(min=0, max=1, help="Exit 1 if less of the tokens comes from a cache.")
]
State = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where the hit rate is kept for the next run.")
]
WaitS = Annotated[
    float, typer.Option(min=0, help="How long a gateway that is not ready is waited for, seconds.")
]


@dataclass(frozen=True, slots=True)
class Answer:
    """Tokens of a prompt, and those of them that came from a cache. worker: who answered."""

    prompt_tokens: int
    cached_tokens: int
    worker: str


@dataclass(frozen=True, slots=True)
class Warmed:
    """A prefix that was asked for twice."""

    name: str
    cold: Answer
    warm: Answer

    @property
    def sentence(self) -> str:
        """What became of it."""
        first, then = self.cold, self.warm
        where = f" on {then.worker}" if then.worker else ""
        return (
            f"{self.name}: {then.cached_tokens} of {then.prompt_tokens} tokens come from the cache"
            f"{where}; {first.cached_tokens} did before."
        )


class Gateway:
    """Asks a gateway. patience_s: how long one that is not ready is asked again."""

    def __init__(
        self,
        http: httpx.Client,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._http = http
        self._clock = clock
        self._sleep = sleep
        self._until = clock() + patience_s

    def only_model(self) -> str:
        """The model that is served. Raises WarmFailed where it is not one."""
        while True:
            names = [one["id"] for one in self._json("GET", "/v1/models").json()["data"]]
            if names or self._clock() >= self._until:
                break
            self._sleep(_PAUSE_S)
        if len(names) != 1:
            served = ", ".join(names) or "none"
            raise WarmFailed(f"Models served: {served}. Name one with --model, or in the file.")
        return str(names[0])

    def ask(self, declared: Declared, model: str) -> Answer:
        """One token behind the prefix. Raises WarmFailed."""
        body = {"model": model, "temperature": 0, **declared.body, "max_tokens": 1}
        answer = self._json("POST", declared.path, body)
        usage = answer.json()["usage"]
        details = usage.get("prompt_tokens_details") or {}
        return Answer(
            usage["prompt_tokens"],
            details.get("cached_tokens") or 0,
            answer.headers.get("x-pando-worker", ""),
        )

    def _json(self, method: str, path: str, body: object = None) -> httpx.Response:
        """An answer with status 200; one that is not ready is asked again. Raises WarmFailed."""
        while True:
            try:
                answer = self._http.request(method, path, json=body)
                if answer.is_success:
                    return answer
                failure = f"{path} answered with status {answer.status_code}: {_reason(answer)}"
                again = answer.status_code == _UNAVAILABLE
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure, again = f"{self._http.base_url} can't be asked: {error}.", True
            if not again or self._clock() >= self._until:
                raise WarmFailed(failure)
            self._sleep(_PAUSE_S)


def warmed(gateway: Gateway, prefixes: list[Declared], model: str | None) -> Iterator[Warmed]:
    """Each prefix once it was asked for twice. Raises WarmFailed."""
    if model is None and any("model" not in one.body for one in prefixes):
        model = gateway.only_model()
    for one in prefixes:
        try:
            cold = gateway.ask(one, model or "")
            yield Warmed(one.name, cold, gateway.ask(one, model or ""))
        except (ValueError, KeyError, TypeError) as error:
            raise WarmFailed(f"{one.name}: no answer as OpenAI's API gives it.") from error
        except WarmFailed as error:
            raise WarmFailed(f"{one.name}: {error}") from error


def hit_rate(results: list[Warmed]) -> float:
    """Of all tokens that were asked for again, those that came from a cache."""
    total = sum(one.warm.prompt_tokens for one in results)
    return sum(one.warm.cached_tokens for one in results) / total if total else 0.0


def warm(
    file: File,
    *,
    url: Url = None,
    model: Model = None,
    least: Least = 0.5,
    state: State = None,
    wait_s: WaitS = 60.0,
) -> None:
    """Ask for declared prefixes so that caches have them; the API's key is PANDO_API_KEY."""
    try:
        prefixes = read_prefixes(file)
        before = _last(state)
        base = (url or os.environ.get("PANDO_BASE_URL") or DEFAULT_URL).removesuffix("/v1")
        key = os.environ.get("PANDO_API_KEY")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        results = []
        with httpx.Client(base_url=base, headers=headers, timeout=_TIMEOUT_S) as http:
            for one in warmed(Gateway(http, wait_s), prefixes, model):
                typer.echo(one.sentence)
                results.append(one)
        rate = hit_rate(results)
        typer.echo(_verdict(rate, before))
        if state is not None:
            state.write_text(json.dumps({"hit_rate": rate, "prefixes": len(results)}) + "\n")
    except (PandoError, OSError) as error:
        typer.echo(f"pando warm: {error}", err=True)
        raise typer.Exit(1) from error
    if rate < least:
        typer.echo(f"pando warm: the hit rate is {rate:.3f}, below --least {least:g}.", err=True)
        raise typer.Exit(1)


def _last(state: Path | None) -> float | None:
    """The last run's hit rate; None without one. Raises WarmFailed."""
    if state is None or not state.exists():
        return None
    try:
        return float(json.loads(state.read_text("utf-8"))["hit_rate"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WarmFailed(f"{state} is no state of `pando warm`: remove it.") from error


def _verdict(rate: float, before: float | None) -> str:
    told = f"Asked for again, {rate:.1%} of all tokens came from a cache"
    if before is None:
        return f"{told}."
    if rate < before - _MARGIN:
        return f"{told}: less than the {before:.1%} of the last run."
    return f"{told}; {before:.1%} in the last run."


def _reason(answer: httpx.Response) -> str:
    """What the gateway says of its refusal."""
    try:
        body: Any = answer.json()
        return str(body["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200] or "(empty)"
