"""Logprobs of a prompt's own tokens, twice: the second time they lie beside the cached pages."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import httpx

from loadtest.errors import RequestRefused
from loadtest.report import Report, milliseconds

NAME = "prompt-logprobs"
COLUMNS = ("prompt tokens", "cold", "warm", "cold / warm", "other bits")
_TIMEOUT_S = 600.0
_VOCABULARY = (1000, 49000)


@dataclass(frozen=True, slots=True)
class Shape:
    """Prompts of random token ids."""

    prompt_tokens: int = 1000
    prompts: int = 5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt, scored twice. same: bit for bit."""

    cold_s: float
    warm_s: float
    same: bool


def measure(url: str, model: str, shape: Shape) -> list[Pair]:
    """Scores every prompt twice. Raises RequestRefused."""
    rng = random.Random(shape.seed)
    pairs = []
    with httpx.Client(base_url=url, timeout=_TIMEOUT_S) as client:
        _scored(client, model, _prompt(rng, 32))  # the first request of a worker takes longer
        for _ in range(shape.prompts):
            prompt = _prompt(rng, shape.prompt_tokens)
            (cold, cold_s), (warm, warm_s) = (_scored(client, model, prompt) for _ in range(2))
            pairs.append(Pair(cold_s, warm_s, cold == warm))
    return pairs


def report(pairs: Sequence[Pair], shape: Shape) -> Report:
    """Medians, and how many prompts were scored otherwise the second time."""
    cold, warm = median(one.cold_s for one in pairs), median(one.warm_s for one in pairs)
    mismatches = sum(not one.same for one in pairs)
    row = [
        f"{shape.prompt_tokens:,}",
        milliseconds(cold),
        milliseconds(warm),
        f"{cold / warm:.1f}",
        str(mismatches),
    ]
    summary = {"cold_over_warm": cold / warm, "mismatches": mismatches}
    return Report(NAME, COLUMNS, [row], summary)


def _prompt(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(*_VOCABULARY) for _ in range(length)]


def _scored(client: httpx.Client, model: str, prompt: list[int]) -> tuple[list[Any], float]:
    """The prompt's logprobs, and the seconds that they took."""
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "prompt_logprobs": 0}
    began = time.perf_counter()
    answer = client.post("/v1/completions", json={**body, "temperature": 0})
    took = time.perf_counter() - began
    if answer.is_error:
        raise RequestRefused(f"HTTP {answer.status_code}: {answer.text}")
    return answer.json()["choices"][0]["prompt_logprobs"], took
