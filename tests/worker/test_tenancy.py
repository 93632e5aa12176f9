"""What a tenant may have of a worker, over the link: whose pages it sees, and who goes first."""

from __future__ import annotations

import json
import math

import pytest

from proto import worker_pb2 as pb
from tests.worker.door import SIZE, Client
from worker.submission import Share
from worker.wire import submission

SYSTEM = {"role": "system", "content": "You answer questions about trees. " * 6}


def chat(question: str) -> pb.ChatPrompt:
    messages = [SYSTEM, {"role": "user", "content": question}]
    return pb.ChatPrompt(messages=json.dumps(messages).encode())


async def cached(client: Client, number: int, namespace: bytes, question: str, public: int) -> int:
    """Tokens that a request took from the cache."""
    await client.submit(number, chat=chat(question), namespace=namespace, public_messages=public)
    await client.until(number)
    return client.usage(number).cached_tokens


async def test_a_public_beginning_is_shared_and_what_follows_is_not(
    caching: Client,
) -> None:
    question = "Why do aspens share one root, and how many trunks can it have?"
    assert await cached(caching, 1, b"a", question, 1) == 0
    of_b = await cached(caching, 2, b"b", question, 1)
    of_a = await cached(caching, 3, b"a", question, 1)
    assert 0 < of_b < of_a
    assert of_b % SIZE == 0
    # The same request as a private one finds nothing: another tree.
    assert await cached(caching, 4, b"c", question, 0) == 0
    assert await cached(caching, 5, b"a", question, 0) == 0
    assert await cached(caching, 6, b"c", "Oaks?", 0) > 0


async def test_public_messages_beyond_the_chat_make_nothing_public(
    caching: Client,
) -> None:
    assert await cached(caching, 1, b"a", "Why?", 9) == 0
    assert await cached(caching, 2, b"b", "Why?", 9) == 0


@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        (pb.Share(), Share()),
        (pb.Share(priority=1, weight=2, cache_share=0.5, cache_cap=0), Share(1, 2, 0.5, 0)),
        (pb.Share(priority=99, weight=-1, cache_share=-1, cache_cap=7), Share(8, 1, 0, 1)),
        (pb.Share(priority=-99, weight=math.inf, cache_share=math.nan), Share(-8, 1, 0, 1)),
        (pb.Share(weight=math.nan, cache_share=math.inf, cache_cap=math.nan), Share(0, 1, 1, 0)),
    ],
)
def test_a_share_beyond_its_range_is_its_end(sent: pb.Share, taken: Share) -> None:
    assert submission(pb.Submit(share=sent)).share == taken


def test_a_boundary_without_a_digest_is_none() -> None:
    message = pb.Submit(boundaries=[pb.Boundary(num_messages=1)], public_messages=2)
    assert submission(message).boundaries == ()
    assert submission(message).public_messages == 2
