"""One unbroken stream to a worker: requests down, steps up, handed to each request.

A stream is broken when it ends, when nothing came for `silence_s` (a worker sends a step at least
every second), when it has work and computed no step for `wedge_s`, when a step's number leaves a
gap, or when a message cannot be read. A gap in the cache's events alone breaks nothing: a snapshot
is asked for.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio

from gateway.config import LinkConfig
from gateway.errors import GatewayError, InternalError, WorkerLost
from gateway.fleet import wire
from gateway.fleet.channel import Encryption
from gateway.fleet.departures import Departure, Departures
from gateway.fleet.ledger import Change, Ledger
from gateway.fleet.workers import Fleet
from gateway.request import Ask, Deliver, Done, Event, Failed
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Telemetry
from proto import worker_pb2 as pb

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
    encryption: Encryption | None = None
    departures: Departures = field(default_factory=Departures)


class Session:
    """One unbroken stream. Its requests are in `_calls` until their end came or was cancelled.

    steps_total: of the worker's process, as it told last.
    """

    def __init__(self, call: Call, worker: str, context: LinkContext):
        self._call = call
        self._worker = worker
        self._ledger: Ledger | None = None
        self._context = context
        self._calls: dict[int, Deliver] = {}
        self._ids = itertools.count(1)
        self._outbox: asyncio.Queue[pb.ToWorker] = asyncio.Queue()
        self._sequence = 0
        self._heard_at = self._stepped_at = context.telemetry.clock()
        self._early: list[pb.Step] = []
        self._closed = False
        self.steps_total = 0

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

    async def prove(self, steps_total: int) -> None:
        """A worker that hung there has computed a step since, or has nothing to do any more.

        Its steps until then are kept for when the session is open. Raises LinkBroken.
        """
        wedge_s = self._context.settings.wedge_s
        try:
            async with asyncio.timeout(wedge_s):
                while True:
                    step = await self._next_step()
                    self._early.append(step)
                    if step.HasField("load") and _has_moved(step.load, steps_total):
                        break
        except TimeoutError as error:
            raise LinkBroken("still_wedged", "it hung and computes no step yet") from error
        self._stepped_at = self._heard_at

    def open(self, ledger: Ledger, hello: pb.WorkerHello) -> None:
        """The view behind the ledger is what the hello says, and follows the steps from now on."""
        self._ledger = ledger
        ledger.open(hello.cache_sequence, wire.boundaries_of(hello.snapshot))

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
        for step in self._early:
            self._take(step)
        self._early.clear()
        while True:
            self._take(await self._next_step())

    async def _next_step(self) -> pb.Step:
        message = await next_message(self._call)
        if message.WhichOneof("kind") != "step":
            raise LinkBroken("protocol", "a message that is no step")
        self._heard_at = self._context.telemetry.clock()
        return message.step

    async def _write(self) -> None:
        while True:
            message = await self._outbox.get()
            with breaking("stream_ended"):
                await self._call.write(message)

    async def _watch(self) -> None:
        settings = self._context.settings
        while True:
            now = self._context.telemetry.clock()
            silent, stuck = now - self._heard_at, now - self._stepped_at
            if silent >= settings.silence_s:
                raise LinkBroken("silence", f"nothing for {silent:.1f} s")
            if stuck >= settings.wedge_s:
                raise LinkBroken("wedged", f"it has work and computed no step for {stuck:.1f} s")
            await asyncio.sleep(min(settings.silence_s - silent, settings.wedge_s - stuck))

    def _take(self, step: pb.Step) -> None:
        """Hand a step to its requests and to the fleet. Raises LinkBroken on a gap."""
        if step.sequence != self._sequence + 1:
            raise LinkBroken("sequence_gap", f"{step.sequence} after {self._sequence}")
        self._sequence = step.sequence
        # First of all: what a request's first output finds unstored is taken for not stored.
        self._follow_cache(step)
        for output in step.outputs:
            if output.request_id in self._calls:
                self._hand(output.request_id, wire.output_of(output))
        for done in step.done:
            self._end(done.request_id, Done(wire.usage_of(done.usage), wire.timing_of(done)))
        for failed in step.failed:
            self._end(failed.request_id, Failed(wire.error_of(failed), wire.timing_of(failed)))
        if step.HasField("load"):
            self._note_progress(step.load)
            load = wire.load_of(step.load)
            self._context.fleet.report(self._worker, load, step.own_assigned_tokens)

    def _note_progress(self, load: pb.Load) -> None:
        """Remember when the worker last had nothing to do or computed something."""
        if _has_moved(load, self.steps_total):
            self.steps_total = load.steps_total
            self._stepped_at = self._heard_at

    def _follow_cache(self, step: pb.Step) -> None:
        """Bring the view up to the step; ask for a snapshot where events are missing."""
        ledger = self._ledger
        assert ledger is not None, "a session is opened before it converses"
        if step.HasField("snapshot"):
            ledger.open(step.cache_sequence, wire.boundaries_of(step.snapshot.stored))
            return
        events = [wire.cache_event_of(event) for event in step.cache_events]
        if not ledger.take(step.cache_sequence, events):
            self._context.telemetry.cache_gaps.labels(self._worker).inc()
            self._outbox.put_nowait(pb.ToWorker(resync=pb.Resync()))
        for event in events:
            kind = event.change.value
            self._context.telemetry.cache_events.labels(self._worker, kind).inc()
            if event.change is Change.EVICTED:
                departure = Departure(self._heard_at, event.by_another)
                self._context.departures.note(self._worker, event.digest, departure)

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


def _has_moved(load: pb.Load, steps_total: int) -> bool:
    """Whether the engine computed a step since, or waits for work."""
    is_idle = not load.running_sequences and not load.waiting_sequences
    return is_idle or load.steps_total != steps_total


async def next_message(call: Call) -> pb.ToGateway:
    """The next message. Raises LinkBroken when there is none."""
    with breaking("stream_ended"):
        message = await call.read()
    if not isinstance(message, pb.ToGateway):
        raise LinkBroken("stream_ended" if call.done() else "unreadable")
    return message


@contextmanager
def breaking(reason: str) -> Iterator[None]:
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
