"""Logprobs of a prompt's own tokens, through the API and with cache hits."""

from __future__ import annotations

from typing import Any

import httpx

from tests.end_to_end.conftest import MODEL, Fleet

PROMPT = "Aspens are trees that grow from one root. " * 12


def asked(fleet: Fleet, prompt: str) -> dict[str, Any]:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0}
    answer = httpx.post(
        f"{fleet.url}/v1/completions", json={**body, "prompt_logprobs": 0}, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_prompt_logprobs_are_the_same_from_the_cache_and_sum_up_to_the_text(fleet: Fleet) -> None:
    cold, warm = asked(fleet, PROMPT), asked(fleet, PROMPT)
    scored = [one["choices"][0]["prompt_logprobs"] for one in (cold, warm)]
    assert scored[0] == scored[1]
    first, *others = scored[0]
    assert first is None
    assert len(others) == cold["usage"]["prompt_tokens"] - 1
    text = "".join(entry["decoded_token"] for one in others for entry in one.values())
    assert PROMPT.endswith(text)
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == len(others)
    # What repeats is expected: the last sentence's tokens are likely, the first one's are not.
    values = [entry["logprob"] for one in others for entry in one.values()]
    assert sum(values[-8:]) > sum(values[:8]) + 10
