"""The stream to one worker: the only module that knows protobuf and gRPC.

    run()            for ever: connect -> greet -> converse until it breaks -> wait -> again
    Session          one unbroken stream: requests down, steps up, handed to each request

A stream is broken when it ends, when nothing came for `silence_s` (a worker sends a step at least
every second), when a step's number leaves a gap, or when a message cannot be read. Then the worker
leaves the fleet and each of its requests ends with one WorkerLost.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import grpc.aio

from gateway.config import LinkConfig, WorkerConfig
from gateway.errors import GatewayError, InternalError, WorkerLost
from gateway.fleet import wire
from gateway.fleet.workers import Fleet, NameTaken, WorkerInfo
from gateway.request import (
    Ask,
    Deliver,
    Done,
    Event,
    Failed,
)
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Telemetry
from proto import worker_pb2 as pb
from proto import worker_pb2_grpc

PROTOCOL = 1

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]
Call = grpc.aio.StreamStreamCall[pb.ToWorker, pb.ToGateway]


class LinkBroken(Exception):
    """The stream is of no more use. reason: a word for the metrics."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class LinkContext:
    """What all links of a gateway share."""

    gateway: str
    settings: LinkConfig
    fleet: Fleet
    telemetry: Telemetry
    log: EventLog
    chance: random.Random


class Session:
    """One unbroken stream. Its requests are in `_calls` until their end came or was cancelled."""

    def __init__(self, call: Call, worker: str, context: LinkContext):
        self._call = call
        self._worker = worker
        self._context = context
        self._calls: dict[int, Deliver] = {}
        self._ids = itertools.count(1)
        self._outbox: asyncio.Queue[pb.ToWorker] = asyncio.Queue()
        self._sequence = 0
        self._heard_at = context.telemetry.clock()
        self._closed = False

    @contextmanager
    def submit(self, ask: Ask, deliver: Deliver) -> Iterator[None]:
        """Ask the worker; leaving the context cancels what has not ended. Raises WorkerLost."""
        if self._closed:
            raise WorkerLost(f"the link to {self._worker} is down")
        request_id = next(self._ids)
        message = pb.ToWorker(submit=wire.submit(request_id, ask))
        self._calls[request_id] = deliver
        self._outbox.put_nowait(message)
        try:
            yield
        finally:
            if self._calls.pop(request_id, None) is not None:
                self._outbox.put_nowait(pb.ToWorker(cancel=pb.Cancel(request_id=request_id)))

    async def converse(self) -> None:
        """Carry messages both ways until the stream breaks. Raises LinkBroken."""
        works = [asyncio.create_task(w) for w in (self._read(), self._write(), self._watch())]
        try:
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
        await done.pop()

    def close(self, error: GatewayError) -> None:
        """End every request that is still here with the error."""
        self._closed = True
        for request_id in list(self._calls):
            self._end(request_id, Failed(error))

    async def _read(self) -> None:
        while True:
            message = await _next_message(self._call)
            if message.WhichOneof("kind") != "step":
                raise LinkBroken("protocol", "a message that is no step")
            self._heard_at = self._context.telemetry.clock()
            self._take(message.step)

    async def _write(self) -> None:
        while True:
            message = await self._outbox.get()
            with _breaking("stream_ended"):
                await self._call.write(message)

    async def _watch(self) -> None:
        limit = self._context.settings.silence_s
        while True:
            silent = self._context.telemetry.clock() - self._heard_at
            if silent >= limit:
                raise LinkBroken("silence", f"nothing for {silent:.1f} s")
            await asyncio.sleep(limit - silent)

    def _take(self, step: pb.Step) -> None:
        """Hand a step to its requests and to the fleet. Raises LinkBroken on a gap."""
        if step.sequence != self._sequence + 1:
            raise LinkBroken("sequence_gap", f"{step.sequence} after {self._sequence}")
        self._sequence = step.sequence
        for output in step.outputs:
            if output.request_id in self._calls:
                self._hand(output.request_id, wire.output_of(output))
        for done in step.done:
            self._end(done.request_id, Done(wire.usage_of(done.usage)))
        for failed in step.failed:
            self._end(failed.request_id, Failed(wire.error_of(failed)))
        if step.HasField("load"):
            self._context.fleet.report(self._worker, wire.load_of(step.load))
        for event in step.cache_events:
            kind = pb.CacheEvent.Kind.Name(event.kind).lower()
            self._context.telemetry.cache_events.labels(self._worker, kind).inc()

    def _end(self, request_id: int, event: Event) -> None:
        deliver = self._calls.pop(request_id, None)
        if deliver is not None:
            self._guarded(deliver, event)

    def _hand(self, request_id: int, event: Event) -> None:
        """A request that cannot take its output is failed; the reader goes on for the others."""
        if not self._guarded(self._calls[request_id], event):
            self._outbox.put_nowait(pb.ToWorker(cancel=pb.Cancel(request_id=request_id)))
            self._end(request_id, Failed(InternalError("the request could not take its output")))

    def _guarded(self, deliver: Deliver, event: Event) -> bool:
        try:
            deliver(event)
        except Exception:
            self._context.log.exception("delivery_failed", worker=self._worker)
            return False
        return True


class WorkerLink:
    """Keeps a session with the worker at one address, for as long as `run` runs."""

    def __init__(self, target: WorkerConfig, context: LinkContext):
        self._target = target
        self._context = context
        self._label = target.name or target.address
        self._log = context.log.bind(worker=self._label, address=target.address)
        self._incarnation = ""
        self._last_reason = ""
        context.fleet.expect(target.address)

    async def run(self) -> None:
        """Connect, converse, and again after a pause that grows while it does not hold."""
        settings, clock = self._context.settings, self._context.telemetry.clock
        pause = settings.backoff_min_s
        while True:
            began = clock()
            reason = await self._attempt()
            self._context.fleet.heard(self._target.address)
            self._context.telemetry.link_breaks.labels(self._label, reason).inc()
            if clock() - began > settings.backoff_max_s:
                pause = settings.backoff_min_s
            await asyncio.sleep(pause * self._context.chance.uniform(0.5, 1.0))
            pause = min(pause * 1.6, settings.backoff_max_s)

    async def _attempt(self) -> str:
        """One connection from start to end; the reason it ended."""
        channel = grpc.aio.insecure_channel(self._target.address, options=_CHANNEL_OPTIONS)
        try:
            async with channel:
                call: Call = worker_pb2_grpc.WorkerStub(channel).Link()
                await self._serve(call, await self._greet(call))
        except LinkBroken as broken:
            self._tell(broken)
            return broken.reason
        except Exception:
            self._log.exception("link_failed")
            return "internal"
        raise AssertionError("a session ends by an exception")

    def _tell(self, broken: LinkBroken) -> None:
        """A worker that stays away is told of once, not with every attempt."""
        write = self._log.debug if broken.reason == self._last_reason else self._log.warning
        self._last_reason = broken.reason
        write("link_broken", reason=broken.reason, detail=str(broken))

    async def _greet(self, call: Call) -> WorkerInfo:
        """Exchange hellos. Raises LinkBroken."""
        hello = pb.GatewayHello(protocol=PROTOCOL, gateway=self._context.gateway)
        try:
            async with asyncio.timeout(self._context.settings.hello_timeout_s):
                with _breaking("unreachable"):
                    await call.write(pb.ToWorker(hello=hello))
                message = await _next_message(call)
        except TimeoutError as error:
            raise LinkBroken("no_hello") from error
        if message.WhichOneof("kind") != "hello" or message.hello.protocol != PROTOCOL:
            raise LinkBroken("protocol", f"want a hello of protocol {PROTOCOL}")
        info = wire.info_of(message.hello)
        if not info.name or self._target.name not in (None, info.name):
            raise LinkBroken("name", f"it calls itself {info.name!r}")
        return info

    async def _serve(self, call: Call, info: WorkerInfo) -> None:
        """The worker is in the fleet for as long as the session lasts. Raises LinkBroken."""
        context = self._context
        session = Session(call, info.name, context)
        try:
            context.fleet.join(info, session)
        except NameTaken as error:
            raise LinkBroken("name", f"{info.name!r} is linked already") from error
        up = context.telemetry.worker_up.labels(info.name)
        context.fleet.heard(self._target.address)
        up.set(1)
        self._last_reason = ""
        if info.incarnation != self._incarnation:
            self._incarnation = info.incarnation
            context.telemetry.incarnations.labels(info.name).inc()
        self._log.info(
            "worker_joined", name=info.name, model=info.model, incarnation=info.incarnation
        )
        try:
            await session.converse()
        finally:
            up.set(0)
            context.fleet.leave(info.name)
            session.close(WorkerLost(f"the link to {info.name} broke"))
            call.cancel()


async def _next_message(call: Call) -> pb.ToGateway:
    """The next message. Raises LinkBroken when there is none."""
    with _breaking("stream_ended"):
        message = await call.read()
    if not isinstance(message, pb.ToGateway):
        raise LinkBroken("stream_ended" if call.done() else "unreadable")
    return message


@contextmanager
def _breaking(reason: str) -> Iterator[None]:
    """What gRPC raises as LinkBroken.

    A stream that the worker cancelled looks like a cancel of our own task; the task knows better.
    """
    try:
        yield
    except grpc.aio.AioRpcError as error:
        detail = f"{error.code().name} {error.details() or ''}"
        raise LinkBroken(reason, detail) from error
    except asyncio.InvalidStateError as error:
        raise LinkBroken(reason, str(error)) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise LinkBroken(reason, "the worker cancelled the stream") from None
