"""One program against the same steps as single calls, and as calls without a cache.

    text (shared) ─▶ fork ─┬─▶ text ─▶ select ─▶ text ─▶ gen      8 branches
                           └─▶ ...
                  ─▶ text with the branches' values ─▶ gen

The calls are what a client's library makes: branches side by side, a branch's steps one after the
other, the whole text with each; a select is a call for every choice. Each call takes a network's
delay there and back. Every round has a text of its own, the same for all.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

import httpx

from loadtest.errors import RequestRefused
from loadtest.report import Report, milliseconds

NAME = "program"
COLUMNS = ("how", "round trips", "tokens computed", "a round")
ARMS = ("program", "calls", "calls, no cache")
_TIMEOUT_S = 600.0
_CHOICES = (" good", " bad", " neither")
_WORDS = ("harbour", "lamp", "keeper", "ferry", "island", "winter", "engine", "letter", "river")


@dataclass(frozen=True, slots=True)
class Shape:
    """words: of the shared text. delay_s: of the network, each way. rounds: medians are shown."""

    branches: int = 8
    words: int = 400
    new_tokens: int = 12
    rounds: int = 5
    delay_s: float = 0.005
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    """What one way took, round by round. values: by name."""

    seconds: list[float] = field(default_factory=list)
    computed: list[int] = field(default_factory=list)
    trips: list[int] = field(default_factory=list)
    values: list[dict[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Round:
    """One round's counters."""

    client: httpx.AsyncClient
    model: str
    shape: Shape
    computed: int = 0
    trips: int = 0
    values: dict[str, str] = field(default_factory=dict)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """One call, with the network's delay. Raises RequestRefused."""
        self.trips += 1
        await asyncio.sleep(self.shape.delay_s)
        answer = await self.client.post(path, json={"model": self.model, **body})
        await asyncio.sleep(self.shape.delay_s)
        if answer.is_error:
            raise RequestRefused(f"HTTP {answer.status_code}: {answer.text}")
        read: dict[str, Any] = answer.json()
        usage = read["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.computed += usage["prompt_tokens"] - cached + usage["completion_tokens"]
        return read


async def measure(urls: Mapping[str, str], model: str, shape: Shape) -> dict[str, Outcome]:
    """Runs every round in all ways, in turns. urls: by way. Raises RequestRefused."""
    outcomes = {arm: Outcome() for arm in urls}
    rng = random.Random(shape.seed)
    for number in range(-1, shape.rounds):
        text = " ".join(rng.choices(_WORDS, k=shape.words))
        for arm, url in urls.items():
            # A text that another way has not computed before, and of the same length.
            own = f"{ARMS.index(arm)} {number % 10} {text}"
            async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as client:
                ran = _Round(client, model, shape)
                began = time.perf_counter()
                await (_program(ran, own) if arm == "program" else _calls(ran, own))
                took = time.perf_counter() - began
            if number >= 0:  # the first one warms up
                outcome = outcomes[arm]
                outcome.seconds.append(took)
                outcome.computed.append(ran.computed)
                outcome.trips.append(ran.trips)
    for arm, url in urls.items():
        async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as client:
            ran = _Round(client, model, shape)
            same = " ".join(random.Random(shape.seed).choices(_WORDS, k=shape.words))
            await (_program(ran, same) if arm == "program" else _calls(ran, same))
            outcomes[arm].values.append(ran.values)
    return outcomes


def report(outcomes: Mapping[str, Outcome]) -> Report:
    """The table, and the program's part of what the calls took."""
    rows = [
        [
            arm,
            f"{median(outcome.trips):.0f}",
            f"{median(outcome.computed):,.0f}",
            milliseconds(median(outcome.seconds)),
        ]
        for arm, outcome in outcomes.items()
    ]
    program, calls, bare = (outcomes[arm] for arm in ARMS)
    pairs = zip(program.seconds, calls.seconds, strict=True)
    expected = calls.values[0]
    figures = {
        "wall_over_calls": median(one / other for one, other in pairs),
        "computed_over_calls": median(program.computed) / median(calls.computed),
        "computed_over_no_cache": median(program.computed) / median(bare.computed),
        "mismatches": sum(
            value != outcome.values[0].get(name)
            for outcome in (program, bare)
            for name, value in expected.items()
        ),
    }
    return Report(NAME, COLUMNS, rows, figures)


def _texts(branch: int) -> tuple[str, str]:
    return f"\nSentence {branch} of it is", ". What it is about:"


async def _program(ran: _Round, text: str) -> None:
    """All of it in one request."""
    branches = []
    for branch in range(ran.shape.branches):
        before, behind = _texts(branch)
        choices = [[choice] for choice in _CHOICES]
        branches.append(
            [
                {"op": "text", "text": [before]},
                {"op": "select", "name": f"kind{branch}", "choices": choices},
                {"op": "text", "text": [behind]},
                _gen(f"about{branch}", ran.shape),
            ]
        )
    joined: list[Any] = ["\nIn short:"]
    for branch in range(ran.shape.branches):
        joined += [{"var": f"about{branch}"}, "\n"]
    program = [
        {"op": "text", "text": [text]},
        {"op": "fork", "branches": branches},
        {"op": "text", "text": joined},
        _gen("short", ran.shape),
    ]
    body = {"program": program, "sampling": {"temperature": 0}, "heal": False}
    ran.values = (await ran.post("/v1/programs", body))["variables"]


def _gen(name: str, shape: Shape) -> dict[str, Any]:
    return {"op": "gen", "name": name, "max_tokens": shape.new_tokens, "stop": ["\n"]}


async def _calls(ran: _Round, text: str) -> None:
    """A call for every step, and for every choice of a select."""
    await asyncio.gather(*(_branch(ran, text, branch) for branch in range(ran.shape.branches)))
    found = [ran.values[f"about{branch}"] for branch in range(ran.shape.branches)]
    joined = "".join(f"{value}\n" for value in found)
    ran.values["short"] = await _completed(ran, f"{text}\nIn short:{joined}")


async def _branch(ran: _Round, text: str, branch: int) -> None:
    before, behind = _texts(branch)
    prompt = text + before
    means = [await _mean(ran, prompt, choice) for choice in _CHOICES]
    kind = _CHOICES[means.index(max(means))]
    ran.values[f"kind{branch}"] = kind
    ran.values[f"about{branch}"] = await _completed(ran, prompt + kind + behind)


async def _mean(ran: _Round, prompt: str, choice: str) -> float:
    """The mean logprob of a choice's tokens behind the prompt."""
    body = {"prompt": prompt + choice, "echo": True, "logprobs": 0, "max_tokens": 0}
    answer = await ran.post("/v1/completions", {**body, "temperature": 0})
    logprobs = answer["choices"][0]["logprobs"]
    places = zip(logprobs["text_offset"], logprobs["token_logprobs"], strict=True)
    return fmean(value for offset, value in places if offset >= len(prompt))


async def _completed(ran: _Round, prompt: str) -> str:
    body = {"prompt": prompt, "max_tokens": ran.shape.new_tokens, "stop": ["\n"], "temperature": 0}
    answer = await ran.post("/v1/completions", body)
    text: str = answer["choices"][0]["text"]
    return text
