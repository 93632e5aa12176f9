from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from loadtest.errors import RequestRefused
from loadtest.streams import Stream, parsed, steady, together

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


def event(text: str = "", **more: Any) -> bytes:
    choice = {"text": text, "finish_reason": None} | more.pop("choice", {})
    return b"data: " + json.dumps({"choices": [choice]} | more).encode() + b"\n\n"


def usage(num_tokens: int) -> bytes:
    told = {"choices": [], "usage": {"completion_tokens": num_tokens}}
    return b"data: " + json.dumps(told).encode() + b"\n\ndata: [DONE]\n\n"


def framed(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in (*pieces, b""))


def test_each_token_has_the_time_of_the_piece_that_completed_it() -> None:
    first, second = event("a"), event("b")
    found = parsed(
        [
            (1.0, HEAD + b"\r\n"),
            (2.0, first + second[:20]),
            (3.0, second[20:]),
            (4.0, usage(2)),
        ]
    )
    assert found == Stream((2.0, 3.0), "ab", 2)


def test_frames_of_chunked_answers_are_taken_off_wherever_pieces_end() -> None:
    text = "data: {}"  # what looks like an event may stand in an answer
    whole = framed(event(text), event("b"), usage(2))
    for cut in range(1, len(whole)):
        pieces = [
            (1.0, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + whole[:cut]),
            (2.0, whole[cut:]),
        ]
        found = parsed(pieces)
        assert (found.text, found.num_tokens) == (f"{text}b", 2)
        assert found.times_s in {(1.0, 1.0), (1.0, 2.0), (2.0, 2.0)}


def test_an_event_that_only_ends_the_stream_is_no_token() -> None:
    ended = event(choice={"finish_reason": "length"}, usage={"completion_tokens": 1})
    found = parsed([(1.0, HEAD + b"\r\n" + event("a")), (2.0, ended)])
    assert found == Stream((1.0,), "a", 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 429 Too Many\r\n\r\nslow down",
        HEAD + b"\r\n" + b'data: {"error": "slow down"}\n\n',
    ],
)
def test_a_refusal_is_told_in_its_words(answer: bytes) -> None:
    with pytest.raises(RequestRefused, match="slow down"):
        parsed([(1.0, answer)])


def test_only_the_time_in_which_all_decode_counts() -> None:
    early = Stream((1.0, 2.0, 3.0, 4.0, 5.0), "", 5)
    late = Stream((3.0, 4.0, 5.0, 6.0, 7.0), "", 5)
    found = steady([early, late])
    assert (found.seconds, found.num_tokens, found.tokens_per_s) == (2.0, 4.0, 2.0)


def test_an_event_of_several_tokens_counts_as_several() -> None:
    assert Stream((1.0, 2.0, 3.0), "", 12).tokens_within(1.0, 3.0) == 8.0


def test_streams_that_never_ran_together_are_refused() -> None:
    with pytest.raises(RequestRefused, match="more new tokens"):
        steady([Stream((1.0, 2.0), "", 2), Stream((2.0, 3.0), "", 2)])


async def test_all_are_sent_before_any_is_answered() -> None:
    waiting: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}")
        waiting.append(writer)
        if len(waiting) == 3:
            for number, one in enumerate(waiting):
                one.write(HEAD + b"\r\n" + event(str(number)) + usage(1))
                one.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        found = await together(f"http://127.0.0.1:{port}", [{"prompt": [1]}] * 3)
    assert sorted(one.text for one in found) == ["0", "1", "2"]
