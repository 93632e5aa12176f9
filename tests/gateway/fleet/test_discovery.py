from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from gateway.config import DnsConfig, WorkerConfig
from gateway.fleet.discovery import Discovery, Dns, Registry, Source, Static
from gateway.fleet.resolver import Question, Resolver
from gateway.telemetry.log import EventLog

LOG = EventLog(logging.getLogger("gateway"))
DNS = DnsConfig("workers.pando.svc", 7000, refresh_s=0.001, timeout_s=0.05)


class Answers:
    """A name service that gives one answer after the other, the last one for ever.

    None: it owes the answer; open: those questions.
    """

    def __init__(self, *answers: list[str] | Exception | None):
        self._answers = list(answers)
        self.asked = 0
        self.open: list[Future[list[str]]] = []

    def __call__(self, host: str, port: int) -> Future[list[str]]:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        future: Future[list[str]] = Future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        elif answer is None:
            self.open.append(future)
        else:
            future.set_result(answer)
        return future


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


class Leases:
    """A store that tells one set of workers after the other, the last one for ever."""

    def __init__(self, *answers: list[str]):
        self._answers = list(answers)

    async def workers(self) -> list[str]:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class Full(ThreadPoolExecutor):
    """A pool whose threads are all taken."""

    def submit(self, *_: object, **__: object) -> Future[Any]:
        raise AssertionError("no thread is free")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - any state, not only ours
            await asyncio.sleep(0.001)


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


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


async def test_a_name_service_that_fails_changes_nothing() -> None:
    answers = Answers(["a:1"], OSError("no such name"), OSError("again"), ["a:1", "b:1"])
    assert await follow(Dns(DNS, LOG, answers), 2) == [["a:1"], ["a:1", "b:1"]]
    assert answers.asked >= 4


async def test_a_name_service_that_hangs_is_asked_nothing_else_until_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = Answers(["a:1"], None, ["another question's"])
    heard = Heard()
    task = asyncio.create_task(Dns(DNS, LOG, answers).watch(heard))
    await until(lambda: "discovery_failed" in caplog.text)
    assert "no answer within" in caplog.text
    answers.open[0].set_result(["a:1", "b:1"])
    assert (await heard.until(2))[:2] == [["a:1"], ["a:1", "b:1"]]
    await end(task)


async def test_a_name_that_is_none_ends_nobody_elses_discovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = DnsConfig("pando..svc", 7000, refresh_s=0.001)
    store = Leases(["w0=10.0.0.1:7000"], ["w0=10.0.0.1:7000", "w1=10.0.0.2:7000"])
    heard = Heard()
    sources: list[Source] = [Dns(bad, LOG, Resolver().resolve), Registry(store, 0.001, LOG)]
    task = asyncio.create_task(Discovery(sources, heard, LOG).watch())
    await until(lambda: "discovery_failed" in caplog.text)
    await heard.until(2)
    assert not task.done()
    await end(task)
    assert "'pando..svc' is no name" in caplog.text


async def test_a_source_that_fails_by_a_defect_ends_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Leases(["w0=10.0.0.1:7000"], ["w0=10.0.0.1:7000", "w1=10.0.0.2:7000"])
    heard = Heard()
    broken = Dns(DNS, LOG, Answers(RuntimeError("a defect")))
    sources: list[Source] = [broken, Registry(store, 0.001, LOG)]
    task = asyncio.create_task(Discovery(sources, heard, LOG).watch())
    await until(lambda: "background_failed work=Dns.watch" in caplog.text)
    await heard.until(2)
    await end(task)


async def test_an_entry_that_nobody_understands_is_told_once_while_it_stands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    odd, good = "\ufffd\ufffd", "w0=10.0.0.1:7000"
    store = Leases([odd, good], [odd, good], ["x", odd], [good, good.replace("w0", "w1")], [odd])
    names: list[list[str | None]] = []

    def found(workers: Sequence[WorkerConfig]) -> None:
        names.append([worker.name for worker in workers])

    task = asyncio.create_task(Registry(store, 0.001, LOG).watch(found))
    await until(lambda: len(names) >= 5)
    await end(task)
    assert names[:5] == [["w0"], ["w0"], [], ["w0", "w1"], []]
    told = [line for line in caplog.messages if line.startswith("registry_entry_unreadable")]
    assert len(told) == 3


async def test_of_two_workers_at_one_address_the_one_with_the_later_lease_counts() -> None:
    store = Leases(["old=a:1", "new=a:1"])
    names: list[str | None] = []

    def found(workers: Sequence[WorkerConfig]) -> None:
        names.extend(worker.name for worker in workers)

    task = asyncio.create_task(Discovery([Registry(store, 1.0, LOG)], found, LOG).watch())
    await until(lambda: bool(names))
    await end(task)
    assert names == ["new"]


async def test_sources_add_up_and_an_address_counts_once() -> None:
    static = Static([WorkerConfig("a:1", "named"), WorkerConfig("b:1")])
    dns = Dns(DNS, LOG, Answers(["a:1", "c:1"], ["c:1"]))
    heard = Heard()
    names: list[dict[str, str | None]] = []

    def found(workers: Sequence[WorkerConfig]) -> None:
        heard(workers)
        names.append({worker.address: worker.name for worker in workers})

    task = asyncio.create_task(Discovery([static, dns], found, LOG).watch())
    sets = await heard.until(2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sets[:2] == [["a:1", "b:1"], ["a:1", "b:1", "c:1"]]
    assert all(known["a:1"] == "named" for known in names)


async def test_a_real_name_resolves_to_addresses_with_the_port() -> None:
    assert "127.0.0.1:7000" in await asyncio.wrap_future(Resolver().resolve("localhost", 7000))


async def test_a_name_is_looked_up_by_no_thread_of_the_pool() -> None:
    asyncio.get_running_loop().set_default_executor(Full())
    assert await asyncio.wrap_future(Resolver().resolve("localhost", 7000))


async def test_a_name_service_that_hangs_has_one_thread_however_often_it_is_watched() -> None:
    asked: list[Question] = []
    may_answer = threading.Event()

    def hang(question: Question) -> list[str]:
        asked.append(question)
        may_answer.wait()
        return ["10.0.0.1:7000"]

    resolver, heard = Resolver(hang), Heard()
    dns = Dns(DNS, LOG, resolver.resolve)
    before = set(threading.enumerate())  # other tests' may end meanwhile
    for _ in range(5):
        task = asyncio.create_task(dns.watch(heard))
        await until(lambda: bool(asked))
        await end(task)
    open_one = resolver.resolve(DNS.name, DNS.port)
    assert resolver.resolve(DNS.name, DNS.port) is open_one
    assert not set(threading.enumerate()) - before
    assert len(asked) == 1
    may_answer.set()
    assert await asyncio.wrap_future(open_one) == ["10.0.0.1:7000"]
    assert len(asked) == 1, "the questions of all watches were one"


async def test_one_name_after_the_other_is_asked_and_a_name_again_once_it_was_answered() -> None:
    asked: list[str] = []

    def ask(question: Question) -> list[str]:
        asked.append(question.host)
        if question.host == "none":
            raise OSError("no such name")
        return [f"{question.host}:{len(asked)}"]

    resolver = Resolver(ask)
    with pytest.raises(OSError, match="no such name"):
        await asyncio.wrap_future(resolver.resolve("none", 1))
    for number in (2, 3):
        assert await asyncio.wrap_future(resolver.resolve("a", 1)) == [f"a:{number}"]
