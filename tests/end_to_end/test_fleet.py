from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.end_to_end.conftest import MODEL, Fleet

QUESTION = "What is the capital of France?"
SYSTEM = "You answer in one short sentence. " * 40


@pytest.fixture
def client(fleet: Fleet) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{fleet.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def chat(client: OpenAI, question: str, system: str = "", max_tokens: int = 24) -> tuple[str, int]:
    """The greedy answer and how many prompt tokens came from a cache."""
    messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[*messages, {"role": "user", "content": question}],  # type: ignore[list-item]
        max_tokens=max_tokens,
        temperature=0,
    )
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    return answer.choices[0].message.content or "", (
        answer.usage.prompt_tokens_details.cached_tokens or 0
    )


def test_the_snippet_of_the_readme_streams_a_sensible_answer(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=32,
        temperature=0,
        stream=True,
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "Paris" in "".join(pieces)
    assert len(pieces) > 3


def test_a_shared_system_prompt_is_computed_once_and_changes_nothing(client: OpenAI) -> None:
    first, cold = chat(client, QUESTION, SYSTEM)
    again, warm = chat(client, QUESTION, SYSTEM)
    other, shared = chat(client, "Name a tree.", SYSTEM)
    assert first == again
    assert cold < 10
    assert warm > 280
    assert shared > 280
    assert other


def test_every_accepted_request_ends_once(fleet: Fleet, client: OpenAI) -> None:
    for _ in range(3):
        chat(client, QUESTION)
    with pytest.raises(openai.BadRequestError):
        chat(client, "a " * 20000)

    def balanced() -> bool:
        accepted = fleet.metric("pando_gateway_accepted_requests_total")
        return accepted == fleet.metric("pando_gateway_ended_requests_total")

    fleet.eventually(balanced)


async def test_hang_ups_at_random_moments_leave_no_request_and_no_page_behind(
    fleet: Fleet,
) -> None:
    chance = random.Random(1)
    limits = httpx.Limits(max_connections=50)

    async def one(number: int) -> None:
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"{number} " * chance.choice([2, 50, 400])}],
            "max_tokens": 200,
            "stream": chance.random() < 0.7,
        }
        timeout = httpx.Timeout(10, read=chance.choice([0.01, 0.05, 0.2, 0.5]))
        async with httpx.AsyncClient(limits=limits, timeout=timeout) as http:
            try:
                url = f"{fleet.url}/v1/chat/completions"
                async with http.stream("POST", url, json=body) as answer:
                    async for _ in answer.aiter_bytes():
                        if chance.random() < 0.3:
                            return
            except httpx.TimeoutException:
                return

    for start in range(0, 180, 12):
        await asyncio.gather(*(one(number) for number in range(start, start + 12)))

    def nothing_left() -> bool:
        return (
            fleet.metric("pando_gateway_requests_in_flight") == 0
            and fleet.metric("pando_gateway_worker_used_pages") == 0
        )

    await asyncio.to_thread(fleet.eventually, nothing_left)
    async with AsyncOpenAI(base_url=f"{fleet.url}/v1", api_key="none") as client:
        answer = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": QUESTION}],
            temperature=0,
            max_tokens=16,
        )
    assert "Paris" in (answer.choices[0].message.content or "")
