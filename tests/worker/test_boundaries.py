"""Boundaries in prompts of ids and of text: what is reported stored is what others then share."""

from __future__ import annotations

from proto import worker_pb2 as pb
from tests.worker.door import SIZE, Client
from worker.sequence import pack_tokens
from worker.wire import MAX_BOUNDARIES

FOX = "The quick brown fox jumps over the lazy dog. "
IDS = [700 + number for number in range(30)]


def digest(count: int) -> bytes:
    return count.to_bytes(16, "little")


def after_tokens(*counts: int) -> list[pb.Boundary]:
    return [pb.Boundary(digest=digest(count), num_tokens=count) for count in counts]


def after_chars(*counts: int) -> list[pb.Boundary]:
    return [pb.Boundary(digest=digest(count), num_chars=count) for count in counts]


async def test_a_boundary_in_ids_is_stored_at_its_very_place(caching: Client) -> None:
    counts = [17, 30, 8, 5, 4, 29]
    unstored = [0, 3, 31, 2**32 - 1]  # nothing, no whole page, beyond the prompt
    await caching.submit(1, IDS, boundaries=after_tokens(*counts, *unstored))
    await caching.until(1)
    assert caching.view.stored == {digest(count): count for count in counts}
    for number, count in enumerate(counts, start=2):
        await caching.submit(number, [*IDS[:count], 999, 999])
        await caching.until(number)
        cached = caching.usage(number).cached_tokens
        assert count // SIZE * SIZE <= cached <= count


async def test_a_boundary_in_text_is_stored_where_other_texts_go_on_alike(caching: Client) -> None:
    text = FOX * 8
    places = [310, 100, 200, 30, len(text), len(text) + 1]
    await caching.submit(1, text=text, boundaries=after_chars(*places))
    await caching.until(1)
    stored = caching.view.stored
    assert set(stored) == {digest(place) for place in (100, 200, 310, len(text))}
    assert caching.usage(1).prompt_tokens > stored[digest(len(text))]
    for number, place in enumerate((100, 200, 310), start=2):
        await caching.submit(number, text=text[:place] + "Etwas anderes. " * 3)
        await caching.until(number)
        cached = caching.usage(number).cached_tokens
        assert stored[digest(place)] // SIZE * SIZE <= cached
        assert cached > place // 8


async def test_a_boundary_that_is_counted_otherwise_than_the_prompt_is_left_out(
    caching: Client,
) -> None:
    messages = [pb.Boundary(digest=b"m", num_messages=1), pb.Boundary(digest=b"n")]
    chat = pb.ChatPrompt(messages=b'[{"role": "user", "content": "Name twenty trees."}]')
    await caching.submit(1, text=FOX * 4, boundaries=[*messages, *after_tokens(20)])
    await caching.submit(2, IDS, boundaries=[*messages, *after_chars(20)])
    await caching.submit(3, chat=chat, boundaries=[*after_tokens(20), *after_chars(10)])
    await caching.until(1, 2, 3)
    assert not caching.view.stored


async def test_a_continued_request_stores_the_boundaries_of_its_prompt(caching: Client) -> None:
    resume = [
        pb.Resume(choice=0, token_ids=pack_tokens([5]), finished=True),
        pb.Resume(choice=1, token_ids=pack_tokens([5, 6])),
    ]
    await caching.submit(1, IDS, n=2, boundaries=after_tokens(20), resume=resume)
    await caching.until(1)
    assert caching.view.stored == {digest(20): 20}


async def test_boundaries_beyond_the_limit_are_left_out(caching: Client) -> None:
    many = [pb.Boundary(digest=digest(number), num_tokens=8) for number in range(1100)]
    many[MAX_BOUNDARIES:] = after_tokens(*range(9, 20))
    await caching.submit(1, IDS, boundaries=many)
    await caching.until(1)
    assert set(caching.view.stored.values()) == {8}
