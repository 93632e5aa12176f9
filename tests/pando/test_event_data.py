"""A stream of events, cut into pieces anywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pando.programs.wire import event_data

WHOLE = 'event: a\r\ndata: {"x":"\u2028"}\r\n\r\n: a comment\ndata:2\n\ndata: [DONE]'


async def pieces(text: str, size: int) -> AsyncIterator[bytes]:
    data = text.encode()
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_every_event_is_told_once_wherever_pieces_and_the_stream_end(
    size: int, end: str
) -> None:
    found = [data async for data in event_data(pieces(WHOLE + end, size))]
    assert found == ['{"x":"\u2028"}'.encode(), b"2", b"[DONE]"]
