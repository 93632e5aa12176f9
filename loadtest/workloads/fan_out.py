"""Many requests at once that share a long prefix: an agent's siblings, a document's questions.

    request i   |<------------ shared prefix ------------>|<- own tokens ->|  -> new tokens

All are sent together to an engine that has seen nothing of them. What counts is the wall time until
the last one ends and the CPU time of all of the engine's processes in between.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from loadtest.errors import RequestRefused
from loadtest.peers.servers import SERVERS, Served, Wish, model_folder
from loadtest.processes import cpu_seconds
from loadtest.report import Report
from loadtest.workloads.shared_prefix import TOKEN_IDS
from pando.up import ROOT

NAME = "fan-out"
BATCH = "generate_batch"
ENGINES = (*SERVERS, BATCH)
COLUMNS = ("engine", "wall s", "CPU s", "new tok/s", "cached tokens", "same answers")
TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How much is shared, how much is not, how much is made of it."""

    num_requests: int = 32
    prefix_tokens: int = 1500
    own_tokens: int = 32
    new_tokens: int = 32
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """cached_tokens: None where the engine does not say. texts: what was generated, by request."""

    wall_s: float
    cpu_s: float
    new_tokens: int
    cached_tokens: int | None
    texts: tuple[str, ...]


def prompts(shape: Shape) -> list[list[int]]:
    """Returns the requests' token ids; no two have the same first own token."""
    rng = random.Random(shape.seed)
    prefix = rng.choices(TOKEN_IDS, k=shape.prefix_tokens)
    starts = rng.sample(TOKEN_IDS, shape.num_requests)
    return [[*prefix, start, *rng.choices(TOKEN_IDS, k=shape.own_tokens - 1)] for start in starts]


def measure(engine: str, wish: Wish, shape: Shape) -> Outcome:
    """Starts an engine, sends everything, ends it. Raises LoadTestError."""
    if engine == BATCH:
        return _batched(wish, shape)
    with SERVERS[engine](wish) as served:
        return asyncio.run(send_all(served, shape))


async def send_all(served: Served, shape: Shape) -> Outcome:
    """Sends everything at once to an engine that runs. Raises RequestRefused."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=served.url, timeout=TIMEOUT_S, limits=limits) as http:
        model = (await http.get("/v1/models")).json()["data"][0]["id"]
        await _complete(http, model, list(TOKEN_IDS[:8]), 2)
        wall, cpu = time.perf_counter(), cpu_seconds(served.pid)
        answers = await asyncio.gather(
            *(_complete(http, model, prompt, shape.new_tokens) for prompt in prompts(shape))
        )
        wall, cpu = time.perf_counter() - wall, cpu_seconds(served.pid) - cpu
    details = [answer["usage"].get("prompt_tokens_details") for answer in answers]
    cached = [one.get("cached_tokens") or 0 for one in details if one]
    return Outcome(
        wall_s=wall,
        cpu_s=cpu,
        new_tokens=sum(answer["usage"]["completion_tokens"] for answer in answers),
        cached_tokens=sum(cached) if cached else None,
        texts=tuple(answer["choices"][0]["text"] for answer in answers),
    )


async def _complete(
    http: httpx.AsyncClient, model: str, prompt: list[int], max_tokens: int
) -> dict[str, Any]:
    body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    answer = await http.post("/v1/completions", json=body | {"ignore_eos": True})
    if answer.is_error:
        raise RequestRefused(f"HTTP {answer.status_code}: {answer.text}")
    parsed: dict[str, Any] = answer.json()
    return parsed


def _batched(wish: Wish, shape: Shape) -> Outcome:
    folder = model_folder(wish.model)
    module = ["-m", "loadtest.peers.generate_batch"]
    arguments = [folder, str(wish.threads), str(shape.new_tokens)]
    done = subprocess.run(
        [sys.executable, *module, *arguments],
        cwd=ROOT,
        input=json.dumps(prompts(shape)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RequestRefused(f"generate_batch failed:\n{done.stderr[-2000:]}")
    figures = json.loads(done.stdout.splitlines()[-1])
    tokens = figures["tokens"]
    return Outcome(figures["wall_s"], figures["cpu_s"], sum(map(len, tokens)), None, ())


def report(outcomes: Mapping[str, Outcome]) -> Report:
    """Returns the table; ratios in the last line are the first engine's over the others'."""
    names = list(outcomes)
    first = outcomes[names[0]]
    summary: dict[str, float] = {}
    for name, outcome in outcomes.items():
        summary |= {f"{name}_wall_s": outcome.wall_s, f"{name}_cpu_s": outcome.cpu_s}
    for name in names[1:]:
        other = outcomes[name]
        summary[f"wall_over_{name}"] = first.wall_s / other.wall_s
        summary[f"cpu_over_{name}"] = first.cpu_s / other.cpu_s
    rows = [_row(name, outcome, first) for name, outcome in outcomes.items()]
    return Report(NAME, COLUMNS, rows, summary)


def _row(name: str, outcome: Outcome, first: Outcome) -> list[str]:
    same = sum(a == b for a, b in zip(outcome.texts, first.texts, strict=False))
    return [
        name,
        f"{outcome.wall_s:.1f}",
        f"{outcome.cpu_s:.1f}",
        f"{outcome.new_tokens / outcome.wall_s:.1f}",
        "-" if outcome.cached_tokens is None else f"{outcome.cached_tokens:,}",
        f"{same} of {len(outcome.texts)}" if outcome.texts else "-",
    ]
