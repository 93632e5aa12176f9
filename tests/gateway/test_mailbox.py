"""What is put is taken once, in order."""

from __future__ import annotations

import asyncio

import pytest

from gateway.mailbox import Mailbox


async def test_what_piled_up_is_taken_in_one_piece() -> None:
    box: Mailbox[int] = Mailbox()
    for item in range(5):
        box.put(item)
    assert await box.take(60) == [0, 1, 2, 3, 4]


async def test_a_waiting_taker_is_woken() -> None:
    box: Mailbox[int] = Mailbox()
    taker = asyncio.create_task(box.take(60))
    await asyncio.sleep(0)
    box.put(1)
    box.put(2)
    assert await taker == [1, 2]


async def test_nothing_comes_of_silence() -> None:
    box: Mailbox[int] = Mailbox()
    assert await box.take(0.001) == []


async def test_a_taker_that_is_cancelled_loses_nothing() -> None:
    box: Mailbox[int] = Mailbox()
    taker = asyncio.create_task(box.take(60))
    await asyncio.sleep(0)
    box.put(1)
    taker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taker
    assert await box.take(60) == [1]
