"""A worker without a model: the real contract over a real gRPC server, playing a script."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

import grpc
import grpc.aio

from proto import worker_pb2 as pb
from proto import worker_pb2_grpc


class StepFields(TypedDict, total=False):
    """What a test may put into a step."""

    outputs: Iterable[pb.Output]
    done: Iterable[pb.Done]
    failed: Iterable[pb.Failed]
    cache_events: Iterable[pb.CacheEvent]
    snapshot: pb.Snapshot


class OutputFields(TypedDict, total=False):
    """What a test may put into an output beside its text."""

    choice: int
    logprobs: Iterable[pb.TokenLogprobs]
    finish_reason: pb.FinishReason


class Line:
    """One stream's way up: numbers the steps, and lets a test spoil the numbers."""

    def __init__(self, worker: FakeWorker):
        self._worker = worker
        self._numbers = itertools.count(1)
        self.cache_sequence = 0
        self.outbox: asyncio.Queue[pb.ToGateway | None] = asyncio.Queue()

    def step(self, **fields: Unpack[StepFields]) -> None:
        """Send one step."""
        number = next(self._numbers) + self._worker.sequence_shift
        self.cache_sequence += len(list(fields.get("cache_events", ())))
        step = pb.Step(
            sequence=number, load=self._worker.load, cache_sequence=self.cache_sequence, **fields
        )
        self.outbox.put_nowait(pb.ToGateway(step=step))

    def text(self, request_id: int, text: str, **fields: Unpack[OutputFields]) -> None:
        """Send one token of one choice."""
        output = pb.Output(request_id=request_id, text=text, token_ids=b"\1\0\0\0", **fields)
        self.step(outputs=[output])

    def done(self, request_id: int, completion: int = 1, prompt: int = 7, cached: int = 3) -> None:
        """End a request well."""
        usage = pb.Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion)
        self.step(done=[pb.Done(request_id=request_id, usage=usage)])

    def fail(
        self, request_id: int, code: pb.FailureCode, message: str = "", param: str = ""
    ) -> None:
        """End a request badly."""
        failed = pb.Failed(request_id=request_id, code=code, message=message, param=param)
        self.step(failed=[failed])


Script = Callable[[pb.Submit, Line], Awaitable[None]]


async def words(submit: pb.Submit, line: Line) -> None:
    """Three words per choice, then done."""
    for word in ("Hello", " big", " world"):
        for choice in range(submit.n):
            line.text(submit.request_id, word, choice=choice)
        await asyncio.sleep(0)
    for choice in range(submit.n):
        line.step(
            outputs=[pb.Output(request_id=submit.request_id, choice=choice, finish_reason=pb.STOP)]
        )
    line.done(submit.request_id, completion=3 * submit.n)


async def silence(submit: pb.Submit, line: Line) -> None:
    """Nothing, until the gateway cancels."""
    await asyncio.Event().wait()


async def endless(submit: pb.Submit, line: Line) -> None:
    """A word every few milliseconds, until the gateway cancels."""
    while True:
        line.text(submit.request_id, " and")
        await asyncio.sleep(0.003)


def failing(code: pb.FailureCode, message: str = "", param: str = "") -> Script:
    """A script that refuses every request."""

    async def script(submit: pb.Submit, line: Line) -> None:
        line.fail(submit.request_id, code, message, param)

    return script


@dataclass
class FakeWorker(worker_pb2_grpc.WorkerServicer):
    """A scripted worker; what it was asked stays readable."""

    name: str = "w0"
    model: str = "tiny"
    task: str = "generate"
    incarnation: str = "first"
    script: Script = words
    protocol: int = 1
    greets: bool = True
    heartbeat_s: float = 0.2
    sequence_shift: int = 0
    cache_events: list[pb.CacheEvent] = field(default_factory=list)
    snapshot: list[pb.CacheEvent] = field(default_factory=list)
    resyncs: int = 0
    lines: list[Line] = field(default_factory=list)
    load: pb.Load = field(default_factory=pb.Load)
    hellos: list[pb.GatewayHello] = field(default_factory=list)
    submits: list[pb.Submit] = field(default_factory=list)
    cancels: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    host: str = "127.0.0.1"
    port: int = 0
    last_submit_at: float = 0.0
    tasks: dict[int, tuple[asyncio.Task[None], Line]] = field(default_factory=dict)

    def hand_back(self) -> None:
        """Give every running request back, as a worker does that leaves, and serve on."""
        for task, _ in list(self.tasks.values()):
            task.cancel("hand back")

    async def start(self) -> FakeWorker:
        """Listen; a port of zero becomes the one that was free."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        worker_pb2_grpc.add_WorkerServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(self.address)
        await self._server.start()
        return self

    async def stop(self) -> None:
        """Die: every stream breaks at once."""
        await self._server.stop(None)

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def Link(
        self,
        requests: AsyncIterator[pb.ToWorker],
        context: grpc.aio.ServicerContext[pb.ToWorker, pb.ToGateway],
    ) -> AsyncIterator[pb.ToGateway]:
        line = Line(self)
        self.lines.append(line)
        first = await anext(aiter(requests))
        self.hellos.append(first.hello)
        if first.hello.protocol != self.protocol == 1:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "protocol")
        if not self.greets:
            await asyncio.Event().wait()
        yield self._hello()
        tasks = [asyncio.create_task(self._listen(requests, line))]
        tasks.append(asyncio.create_task(self._beat(line)))
        try:
            while (message := await line.outbox.get()) is not None:
                yield message
        finally:
            for task in tasks:
                task.cancel()

    def _hello(self) -> pb.ToGateway:
        hello = pb.WorkerHello(
            protocol=self.protocol,
            worker=self.name,
            incarnation=self.incarnation,
            model=self.model,
            task=self.task,
            max_model_len=2048,
            prefix_cache="radix",
            page_size=16,
            max_waiting_sequences=1024,
            snapshot=self.snapshot,
        )
        return pb.ToGateway(hello=hello)

    async def _beat(self, line: Line) -> None:
        while True:
            line.step(cache_events=self.cache_events)
            self.cache_events = []
            await asyncio.sleep(self.heartbeat_s)

    async def _listen(self, requests: AsyncIterator[pb.ToWorker], line: Line) -> None:
        running: dict[int, asyncio.Task[None]] = {}
        try:
            async for message in requests:
                if message.WhichOneof("kind") == "submit":
                    self.submits.append(message.submit)
                    self.last_submit_at = time.monotonic()
                    task = asyncio.create_task(self._play(message.submit, line))
                    running[message.submit.request_id] = task
                    self.tasks[id(task)] = (task, line)
                    task.add_done_callback(lambda done: self.tasks.pop(id(done), None))
                elif message.WhichOneof("kind") == "resync":
                    self.resyncs += 1
                    line.step(snapshot=pb.Snapshot(stored=self.snapshot))
                else:
                    self.cancels.append(message.cancel.request_id)
                    running[message.cancel.request_id].cancel()
        finally:
            for task in running.values():
                task.cancel()
            line.outbox.put_nowait(None)

    async def _play(self, submit: pb.Submit, line: Line) -> None:
        try:
            await self.script(submit, line)
            self.ended.append(submit.request_id)
        except asyncio.CancelledError as error:
            code = pb.DRAINING if error.args else pb.CANCELLED
            line.fail(submit.request_id, code)
