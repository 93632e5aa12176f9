"""The gRPC door (steps 6 and 11 of a request's path): one stream per gateway.

One `Outgoing` stands for one stream; what the service tells it between two flushes leaves as one
Step, however many requests it holds. Every Step's cache_sequence is the last one's plus the events
that it carries; after a Resync one Step carries a snapshot in their place:

    hello  snapshot at 7                       events 6, 7 of a step under way come later: skipped
    Step   events 8, 9      cache_sequence 9
    Step   snapshot at 12   cache_sequence 12  it holds 10 to 12, which come later: skipped
    Step   event 13         cache_sequence 13
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass

import grpc
import grpc.aio

from proto import worker_pb2 as pb
from proto import worker_pb2_grpc
from worker import wire
from worker.cache.boundaries import BoundaryEvent
from worker.engine import Load
from worker.errors import RequestFailed
from worker.service import Service
from worker.submission import Output, Usage
from worker.timing import Timing
from worker.wire import PROTOCOL, Assigned, Identity

log = logging.getLogger("pando.worker.link")

Stream = grpc.aio.ServicerContext[pb.ToWorker, pb.ToGateway]


@dataclass(frozen=True, slots=True)
class WorkerState:
    """Where links read what is not theirs: load now, the cache's boundaries, a token's bytes."""

    load: Callable[[], Load]
    snapshot: Callable[[], tuple[list[BoundaryEvent], int]]
    token_bytes: Callable[[int], bytes]


class Outgoing:
    """The outlet of one stream: gathers a Step, hands it to the writer at each flush."""

    def __init__(self, gateway: str, service: Service, state: WorkerState, cache_sequence: int):
        self.gateway = gateway
        self._service = service
        self._state = state
        self._step = pb.Step()
        self._ready = asyncio.Event()
        self._sequence = 0
        self._cache_sequence = cache_sequence
        self._resync = False
        self._closed = False

    def output(self, request_id: int, output: Output) -> None:
        """Adds a choice's new tokens."""
        self._step.outputs.append(wire.output_of(request_id, output, self._state.token_bytes))

    def done(self, request_id: int, usage: Usage, timing: Timing) -> None:
        """Adds a request's end."""
        self._step.done.append(wire.done_of(request_id, usage, timing))

    def failed(self, request_id: int, error: RequestFailed, timing: Timing) -> None:
        """Adds a request's other end."""
        self._step.failed.append(wire.failed_of(request_id, error, timing))

    def flush(self, events: list[BoundaryEvent]) -> None:
        """Wakes the writer. Steps that it has not sent yet grow into one."""
        for event in events:
            if event.sequence > self._cache_sequence:
                self._step.cache_events.append(wire.event_of(event))
                self._cache_sequence = event.sequence
        self._ready.set()

    def resync(self) -> None:
        """Has the next step say all that the cache holds."""
        self._resync = True
        self._ready.set()

    def close(self) -> None:
        """Ends `steps` with what has gathered until now."""
        self._closed = True
        self._ready.set()

    def reader_ended(self, reader: asyncio.Task[None]) -> None:
        """Nothing more comes from the gateway."""
        if not reader.cancelled() and (error := reader.exception()) is not None:
            log.error("link reader failed", exc_info=error, extra={"gateway": self.gateway})
        self.close()

    async def steps(self, heartbeat_s: float) -> AsyncIterator[pb.ToGateway]:
        """Yields what has gathered, and a step with the load alone when nothing has for so long.

        Ends once it is closed and nothing is left to send.
        """
        while self._ready.is_set() or not self._closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(heartbeat_s):
                    await self._ready.wait()
            self._ready.clear()
            yield pb.ToGateway(step=self._take())

    def _take(self) -> pb.Step:
        """Returns the step that has gathered, complete, and begins the next one."""
        step, self._step = self._step, pb.Step()
        self._sequence += 1
        step.sequence = self._sequence
        if self._resync:
            self._put_snapshot(step)
        step.cache_sequence = self._cache_sequence
        service = self._service
        assigned = Assigned(service.assigned_tokens, service.assigned_to(self))
        step.load.CopyFrom(wire.load_of(self._state.load(), assigned, draining=service.draining))
        step.own_assigned_tokens = assigned.own
        return step

    def _put_snapshot(self, step: pb.Step) -> None:
        """The snapshot may be ahead of the events that came here; it holds all that did."""
        self._resync = False
        stored, self._cache_sequence = self._state.snapshot()
        del step.cache_events[:]
        step.snapshot.CopyFrom(pb.Snapshot(stored=[wire.event_of(event) for event in stored]))


class LinkServicer(worker_pb2_grpc.WorkerServicer):
    """Serves Worker.Link."""

    def __init__(
        self, identity: Identity, service: Service, state: WorkerState, heartbeat_s: float
    ) -> None:
        self._identity = identity
        self._service = service
        self._state = state
        self._heartbeat_s = heartbeat_s
        self._links: set[Outgoing] = set()

    def close(self) -> None:
        """Ends every link, once it has sent what has gathered."""
        for link in self._links:
            link.close()

    def serve(self, server: grpc.aio.Server) -> None:
        """Adds the service to a server."""
        worker_pb2_grpc.add_WorkerServicer_to_server(self, server)

    async def Link(  # noqa: D102 (the contract names it)
        self, request_iterator: AsyncIterator[pb.ToWorker], context: Stream
    ) -> AsyncIterator[pb.ToGateway]:
        gateway = await _greeted(request_iterator, context)
        snapshot, cache_sequence = self._state.snapshot()
        link = Outgoing(gateway, self._service, self._state, cache_sequence)
        # Connected with the snapshot, so that no cache event falls between the two.
        self._service.connect(link)
        self._links.add(link)
        log.info("link open", extra={"gateway": gateway})
        reader = asyncio.create_task(self._read(request_iterator, link))
        reader.add_done_callback(link.reader_ended)
        try:
            yield pb.ToGateway(hello=wire.hello_of(self._identity, snapshot, cache_sequence))
            async for message in link.steps(self._heartbeat_s):
                yield message
        finally:
            reader.cancel()
            self._links.discard(link)
            self._service.disconnect(link)
            log.info("link closed", extra={"gateway": gateway})

    async def _read(self, messages: AsyncIterator[pb.ToWorker], link: Outgoing) -> None:
        async for message in messages:
            kind = message.WhichOneof("kind")
            if kind == "submit":
                self._service.submit(link, wire.submission(message.submit))
            elif kind == "cancel":
                self._service.cancel(link, message.cancel.request_id)
            elif kind == "resync":
                link.resync()


async def _greeted(messages: AsyncIterator[pb.ToWorker], context: Stream) -> str:
    """Returns the gateway's name from its hello; ends the call when there is none of our kind."""
    async for message in messages:
        if message.WhichOneof("kind") != "hello":
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "The first message must be GatewayHello."
            )
        if message.hello.protocol != PROTOCOL:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"This worker speaks protocol {PROTOCOL}, the gateway {message.hello.protocol}.",
            )
        return message.hello.gateway
    await context.abort(grpc.StatusCode.CANCELLED, "The gateway left before its hello.")
    raise AssertionError("abort raises")
