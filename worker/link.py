"""The gRPC door (steps 6 and 11 of a request's path): messages to values and back.

Only this module and `worker.health` know protobuf. One `Outgoing` stands for one stream; what the
service tells it between two flushes leaves as one Step, however many requests it holds.
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
from worker.cache.boundaries import BoundaryEvent, EventKind
from worker.engine import Load
from worker.errors import RequestFailed, failure_code
from worker.request import FinishReason, Sampling, TokenLogprobs
from worker.sequence import pack_tokens
from worker.service import Service
from worker.submission import (
    ChatInput,
    NamedBoundary,
    Output,
    StopRules,
    Submission,
    Usage,
)

log = logging.getLogger("pando.worker.link")

PROTOCOL = 1
MAX_BOUNDARIES = 1024

_FINISH = {
    None: pb.FINISH_REASON_UNSPECIFIED,
    FinishReason.STOP: pb.STOP,
    FinishReason.LENGTH: pb.LENGTH,
}
_EVENT = {
    EventKind.STORED: pb.CacheEvent.STORED,
    EventKind.EVICTED: pb.CacheEvent.EVICTED,
    EventKind.CLEARED: pb.CacheEvent.CLEARED,
}

Stream = grpc.aio.ServicerContext[pb.ToWorker, pb.ToGateway]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a worker says of itself when a link opens."""

    worker: str
    incarnation: str
    model: str
    task: str
    max_model_len: int
    prefix_cache: str
    page_size: int
    cache_tokens: int
    max_running_sequences: int
    version: str
    vocab_size: int


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
        self._closed = False

    def output(self, request_id: int, output: Output) -> None:
        """Adds a choice's new tokens."""
        message = self._step.outputs.add(
            request_id=request_id,
            choice=output.choice,
            text=output.text,
            token_ids=pack_tokens(output.tokens),
            finish_reason=_FINISH[output.finish],
            stop_reason=output.stop or "",
        )
        for entry in output.logprobs:
            message.logprobs.append(self._logprobs(entry))

    def done(self, request_id: int, usage: Usage) -> None:
        """Adds a request's end."""
        self._step.done.add(
            request_id=request_id,
            usage=pb.Usage(
                prompt_tokens=usage.prompt_tokens,
                cached_tokens=usage.cached_tokens,
                completion_tokens=usage.completion_tokens,
            ),
        )

    def failed(self, request_id: int, error: RequestFailed) -> None:
        """Adds a request's other end."""
        self._step.failed.add(
            request_id=request_id,
            code=pb.FailureCode.Value(failure_code(error)),
            message=error.message,
            param=error.param,
        )

    def flush(self, events: list[BoundaryEvent]) -> None:
        """Wakes the writer. Steps that it has not sent yet grow into one."""
        for event in events:
            if event.sequence > self._cache_sequence:
                self._step.cache_events.append(_event(event))
                self._cache_sequence = event.sequence
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
            step, self._step = self._step, pb.Step()
            self._sequence += 1
            step.sequence = self._sequence
            step.cache_sequence = self._cache_sequence
            step.load.CopyFrom(_load(self._state.load(), draining=self._service.draining))
            yield pb.ToGateway(step=step)

    def _logprobs(self, entry: TokenLogprobs) -> pb.TokenLogprobs:
        return pb.TokenLogprobs(
            sampled=self._logprob(*entry.sampled),
            top=[self._logprob(token, value) for token, value in entry.top],
        )

    def _logprob(self, token: int, value: float) -> pb.Logprob:
        return pb.Logprob(token_id=token, logprob=value, token=self._state.token_bytes(token))


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
            yield pb.ToGateway(hello=self._hello(snapshot, cache_sequence))
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
                self._service.submit(link, submission(message.submit))
            elif kind == "cancel":
                self._service.cancel(link, message.cancel.request_id)

    def _hello(self, snapshot: list[BoundaryEvent], cache_sequence: int) -> pb.WorkerHello:
        me = self._identity
        return pb.WorkerHello(
            protocol=PROTOCOL,
            worker=me.worker,
            incarnation=me.incarnation,
            model=me.model,
            task=me.task,
            max_model_len=me.max_model_len,
            prefix_cache=me.prefix_cache,
            page_size=me.page_size,
            cache_tokens=me.cache_tokens,
            max_running_sequences=me.max_running_sequences,
            version=me.version,
            vocab_size=me.vocab_size,
            snapshot=[_event(event) for event in snapshot],
            cache_sequence=cache_sequence,
        )


def submission(message: pb.Submit) -> Submission:
    """Returns the request as our own value, the contract's defaults put in.

    Boundaries beyond MAX_BOUNDARIES are left out: they carry no answer.
    """
    sampling, stopping = message.sampling, message.stopping
    return Submission(
        request_id=message.request_id,
        prompt=_prompt(message),
        sampling=Sampling(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            repetition_penalty=sampling.repetition_penalty or 1.0,
            logit_bias=dict(sampling.logit_bias),
        ),
        seed=sampling.seed if sampling.HasField("seed") else None,
        rules=StopRules(
            max_tokens=stopping.max_tokens if stopping.HasField("max_tokens") else None,
            stop=tuple(stopping.stop),
            stop_token_ids=tuple(stopping.stop_token_ids),
            min_tokens=stopping.min_tokens,
            ignore_eos=stopping.ignore_eos,
            include_stop=stopping.include_stop,
        ),
        n=max(message.n, 1),
        top_logprobs=message.top_logprobs if message.HasField("top_logprobs") else None,
        trace_id=message.trace_id,
        tenant=message.tenant,
        namespace=message.namespace,
        boundaries=tuple(
            NamedBoundary(one.digest, one.num_messages)
            for one in message.boundaries[:MAX_BOUNDARIES]
        ),
    )


def _prompt(message: pb.Submit) -> ChatInput | str | bytes:
    kind = message.WhichOneof("prompt")
    if kind == "chat":
        chat = message.chat
        return ChatInput(chat.messages, chat.tools, chat.template_kwargs)
    return message.text if kind == "text" else message.token_ids


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


def _event(event: BoundaryEvent) -> pb.CacheEvent:
    return pb.CacheEvent(kind=_EVENT[event.kind], digest=event.digest, num_tokens=event.num_tokens)


def _load(load: Load, *, draining: bool) -> pb.Load:
    counters = load.counters
    return pb.Load(
        running_sequences=load.running,
        waiting_sequences=load.waiting,
        uncomputed_tokens=load.uncomputed_tokens,
        total_pages=load.total_pages,
        used_pages=load.used_pages,
        cached_pages=load.cached_pages,
        prompt_tokens_total=counters.prompt_tokens,
        cached_tokens_total=counters.cached_tokens,
        generated_tokens_total=counters.generated_tokens,
        evicted_pages_total=load.evicted_pages,
        preemptions_total=counters.preemptions,
        draining=draining,
    )
