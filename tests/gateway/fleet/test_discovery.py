from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from gateway.config import DnsConfig, WorkerConfig
from gateway.fleet.discovery import Discovery, Dns, Found, Static, resolve
from gateway.telemetry.log import EventLog

LOG = EventLog(logging.getLogger("gateway"))
DNS = DnsConfig("workers.pando.svc", 7000, refresh_s=0.001, timeout_s=0.05)


class Answers:
    """A name service that gives one answer after the other, the last one for ever."""

    def __init__(self, *answers: list[str] | Exception | None):
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer


class Heard:
    """Everything that was found, in order, repetitions left out."""

    def __init__(self) -> None:
        self.sets: list[list[str]] = []

    def __call__(self, workers: Sequence[WorkerConfig]) -> None:
        addresses = [worker.address for worker in workers]
        if not self.sets or self.sets[-1] != addresses:
            self.sets.append(addresses)

    async def until(self, number: int) -> list[list[str]]:
        async with asyncio.timeout(10):
            while len(self.sets) < number:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return self.sets


async def follow(source: object, number: int) -> list[list[str]]:
    heard = Heard()
    task = asyncio.create_task(source.watch(heard))  # type: ignore[attr-defined]
    try:
        return await heard.until(number)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_name_is_followed_as_its_addresses_change() -> None:
    answers = Answers(["10.0.0.1:7000"], ["10.0.0.1:7000", "10.0.0.2:7000"], ["10.0.0.2:7000"])
    found = await follow(Dns(DNS, LOG, answers), 3)
    assert found == [["10.0.0.1:7000"], ["10.0.0.1:7000", "10.0.0.2:7000"], ["10.0.0.2:7000"]]


async def test_a_name_service_that_fails_or_hangs_changes_nothing() -> None:
    answers = Answers(["a:1"], OSError("no such name"), None, OSError("again"), ["a:1", "b:1"])
    assert await follow(Dns(DNS, LOG, answers), 2) == [["a:1"], ["a:1", "b:1"]]
    assert answers.asked >= 5


async def test_sources_add_up_and_an_address_counts_once() -> None:
    static = Static([WorkerConfig("a:1", "named"), WorkerConfig("b:1")])
    dns = Dns(DNS, LOG, Answers(["a:1", "c:1"], ["c:1"]))
    heard = Heard()
    names: list[dict[str, str | None]] = []

    def found(workers: Sequence[WorkerConfig]) -> None:
        heard(workers)
        names.append({worker.address: worker.name for worker in workers})

    task = asyncio.create_task(Discovery([static, dns], found).watch())
    sets = await heard.until(2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sets[:2] == [["a:1", "b:1"], ["a:1", "b:1", "c:1"]]
    assert all(known["a:1"] == "named" for known in names)


async def test_a_real_name_resolves_to_addresses_with_the_port() -> None:
    assert "127.0.0.1:7000" in await resolve("localhost", 7000)


def _types(found: Found) -> None:
    """Found takes what Discovery gives."""
    found([WorkerConfig("a:1")])
