"""One streamed completion, timed as its client sees it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from loadtest.errors import RequestRefused

TIMEOUT_S = 600.0
DATA = "data: "
END = "[DONE]"


@dataclass(frozen=True, slots=True)
class Completion:
    """What a completion cost. ttft_s: from sending it to its first token."""

    ttft_s: float
    total_s: float
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def computed_tokens(self) -> int:
        """Tokens of the prompt that the worker had to compute."""
        return self.prompt_tokens - self.cached_tokens


class Client:
    """Sends completions to one gateway. api_key: empty where none is asked for."""

    def __init__(
        self,
        url: str,
        api_key: str = "",
        clock: Callable[[], float] = time.perf_counter,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=TIMEOUT_S, transport=transport
        )
        self._clock = clock

    def first_model(self) -> str:
        """Returns the name of the first model that is served. Raises RequestRefused."""
        answer = self._http.get("/v1/models")
        if answer.is_error or not answer.json()["data"]:
            raise RequestRefused(f"The gateway serves no model: {answer.text}")
        return str(answer.json()["data"][0]["id"])

    def complete(self, model: str, prompt: Sequence[int], max_tokens: int) -> Completion:
        """Returns the cost of a greedy completion of these token ids. Raises RequestRefused."""
        body = {
            "model": model,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began = self._clock()
        with self._http.stream("POST", "/v1/completions", json=body) as answer:
            if answer.is_error:
                raise RequestRefused(f"HTTP {answer.status_code}: {answer.read().decode()}")
            return self._timed(began, events(answer.iter_lines()))

    def _timed(self, began: float, chunks: Iterator[dict[str, Any]]) -> Completion:
        first: float | None = None
        usage: dict[str, Any] | None = None
        for chunk in chunks:
            if "error" in chunk:
                raise RequestRefused(f"The stream broke off: {chunk['error']}")
            if first is None and chunk.get("choices"):
                first = self._clock()
            usage = chunk.get("usage") or usage
        if first is None or usage is None:
            raise RequestRefused("The stream ended without tokens or without usage.")
        details = usage.get("prompt_tokens_details") or {}
        return Completion(
            ttft_s=first - began,
            total_s=self._clock() - began,
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=details.get("cached_tokens", 0),
            completion_tokens=usage["completion_tokens"],
        )


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects of a server-sent event stream up to its end mark."""
    for line in lines:
        if not line.startswith(DATA):
            continue
        data = line.removeprefix(DATA)
        if data == END:
            return
        yield json.loads(data)
