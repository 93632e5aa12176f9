"""Documents of one query, scored together: what is in front of each is computed once, or 32 times.

    prompt   |<-- system, instruction, query: 500 tokens, shared -->|<- document ->|<- end ->|

The same requests go to a worker with a cache and to one without; scores must be equal, bit for bit.
Every query is new to both, so what the cache gives comes from within one request.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import httpx

from loadtest.errors import RequestRefused
from loadtest.report import Report, milliseconds

NAME = "rerank"
COLUMNS = ("cache", "documents", "prompt tokens", "cached", "a request", "documents/s")
_TIMEOUT_S = 600.0
_WORDS = [
    "harbour",
    "lamp",
    "keeper",
    "ferry",
    "island",
    "winter",
    "engine",
    "letter",
    "garden",
    "silver",
    "river",
    "copper",
    "window",
    "market",
    "bridge",
    "forest",
    "signal",
    "village",
    "mountain",
    "paper",
    "station",
    "morning",
    "captain",
    "library",
]


@dataclass(frozen=True, slots=True)
class Shape:
    """Words are a token or two each. queries: how many requests; medians are shown."""

    documents: int = 32
    query_words: int = 430
    document_words: int = 40
    queries: int = 5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one fleet did. scores: of every query, by document."""

    request_s: float
    prompt_tokens: float
    cached_tokens: float
    scores: list[list[float]]


def flags(cache: str) -> tuple[str, ...]:
    """What a worker is started with. The model answers yes or no, and was never trained to."""
    return ("--task", "rerank", "--no-check-task", "--prefix-cache", cache)


def measure(url: str, model: str, shape: Shape) -> Outcome:
    """Reranks for one query after the other. Raises RequestRefused."""
    rng = random.Random(shape.seed)
    seconds, usages, scores = [], [], []
    with httpx.Client(base_url=url, timeout=_TIMEOUT_S) as client:
        _reranked(client, model, "warm up", ["a", "b"])  # a worker's first request takes longer
        for _ in range(shape.queries):
            query = _words(rng, shape.query_words)
            documents = [_words(rng, shape.document_words) for _ in range(shape.documents)]
            answer, took = _reranked(client, model, query, documents)
            seconds.append(took)
            usages.append(answer["usage"])
            found = {one["index"]: one["relevance_score"] for one in answer["results"]}
            scores.append([found[index] for index in range(shape.documents)])
    return Outcome(
        median(seconds),
        median(one["prompt_tokens"] for one in usages),
        median(one["prompt_tokens_details"]["cached_tokens"] for one in usages),
        scores,
    )


def report(outcomes: Mapping[str, Outcome], shape: Shape) -> Report:
    """The table, how much sooner the first fleet is through than the last, and how equal both."""
    rows = [_row(cache, outcome, shape) for cache, outcome in outcomes.items()]
    first, *_, last = outcomes.values()
    differences = [
        abs(one - other)
        for pair in zip(first.scores, last.scores, strict=True)
        for one, other in zip(*pair, strict=True)
    ]
    speedup = last.request_s / first.request_s
    return Report(NAME, COLUMNS, rows, {"speedup": speedup, "max_abs_diff": max(differences)})


def _row(cache: str, outcome: Outcome, shape: Shape) -> list[str]:
    return [
        cache,
        str(shape.documents),
        f"{outcome.prompt_tokens:,.0f}",
        f"{outcome.cached_tokens:,.0f}",
        milliseconds(outcome.request_s),
        f"{shape.documents / outcome.request_s:.1f}",
    ]


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(_WORDS, k=count))


def _reranked(
    client: httpx.Client, model: str, query: str, documents: Sequence[str]
) -> tuple[dict[str, Any], float]:
    """The answer, and the seconds that it took."""
    body = {"model": model, "query": query, "documents": documents}
    began = time.perf_counter()
    answer = client.post("/v1/rerank", json=body)
    took = time.perf_counter() - began
    if answer.is_error:
        raise RequestRefused(f"HTTP {answer.status_code}: {answer.text}")
    return answer.json(), took
