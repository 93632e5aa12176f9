"""`python -m loadtest.fake.worker`: several fake workers in one process, on ports of 127.0.0.1.

A message whose content begins with `NUMBER:` counts as so many tokens, any other as a quarter of
its characters; so a trace's blocks are messages. Prints `ready` when all listen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import secrets
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import grpc
import grpc.aio
import uvloop
from xxhash import xxh3_128

from loadtest.fake.cache import Change, FakeCache, Mark, NoCache
from loadtest.fake.engine import FakeEngine, Job, Pace, Token
from proto import worker_pb2 as pb
from proto import worker_pb2_grpc

HEARTBEAT_S = 1.0
# As a worker says by default.
MAX_WAITING = 1024
# Characters, or ids, of a piece of a plain prompt: as the gateway cuts by default.
_GRAIN = 1024
_COUNT = re.compile(r"(\d+):")
Stream = grpc.aio.ServicerContext[pb.ToWorker, pb.ToGateway]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a fake worker says of itself."""

    name: str
    model: str = "fake-model"
    cache_tokens: int = 1_000_000
    prefix_cache: str = "radix"
    token_text: str = " token"


@dataclass(eq=False)
class _Link:
    """One gateway's stream."""

    cache_sequence: int
    step: pb.Step = field(default_factory=pb.Step)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    jobs: dict[int, Job] = field(default_factory=dict)
    assigned_tokens: int = 0


class FakeWorker(worker_pb2_grpc.WorkerServicer):
    """Serves Worker.Link; several gateways may be linked."""

    def __init__(self, identity: Identity, pace: Pace):
        self._identity = identity
        self._pace = pace
        self._incarnation = secrets.token_hex(8)
        self._links: set[_Link] = set()
        is_off = identity.prefix_cache == "off"
        self._cache = NoCache() if is_off else FakeCache(identity.cache_tokens)
        self.engine = FakeEngine(pace, self._cache, self._report)

    async def Link(  # noqa: D102 (the contract names it)
        self, request_iterator: AsyncIterator[pb.ToWorker], _: Stream
    ) -> AsyncIterator[pb.ToGateway]:
        await anext(aiter(request_iterator))
        link = _Link(self._cache.sequence)
        self._links.add(link)
        hello = self._hello()
        reader = asyncio.create_task(self._read(request_iterator, link))
        sequence = 0
        try:
            yield hello
            while not reader.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_S):
                        await link.ready.wait()
                link.ready.clear()
                step, link.step = link.step, pb.Step()
                sequence += 1
                step.sequence = sequence
                step.cache_sequence = link.cache_sequence
                step.own_assigned_tokens = link.assigned_tokens
                self._fill(step.load)
                yield pb.ToGateway(step=step)
        finally:
            reader.cancel()
            self._links.discard(link)
            for job in link.jobs.values():
                self.engine.cancel(job)

    async def _read(self, messages: AsyncIterator[pb.ToWorker], link: _Link) -> None:
        async for message in messages:
            kind = message.WhichOneof("kind")
            if kind == "submit":
                job = _job(message.submit, link)
                link.jobs[job.request_id] = job
                link.assigned_tokens += job.expected_tokens
                self.engine.submit(job)
            elif kind == "cancel":
                job_or_none = link.jobs.pop(message.cancel.request_id, None)
                if job_or_none is not None:
                    self._started(job_or_none, link)
                    self.engine.cancel(job_or_none)
                    link.step.failed.add(request_id=message.cancel.request_id, code=pb.CANCELLED)
                    link.ready.set()
            elif kind == "resync":
                link.step.snapshot.CopyFrom(pb.Snapshot(stored=self._snapshot()))
                link.step.ClearField("cache_events")
                link.cache_sequence = self._cache.sequence
                link.ready.set()

    def _report(self, tokens: list[Token], ended: list[Job]) -> None:
        """One engine step is over: every link hears of its requests, of load and cache."""
        outputs: dict[tuple[Job, int], pb.Output] = {}
        for token in tokens:
            link = token.job.link
            assert isinstance(link, _Link)
            output = outputs.get((token.job, token.choice))
            if output is None:
                self._started(token.job, link)
                output = link.step.outputs.add(request_id=token.job.request_id, choice=token.choice)
                outputs[token.job, token.choice] = output
                if not token.job.is_told:
                    token.job.is_told = True
                    output.prompt_tokens = token.job.prompt_tokens
                    output.cached_tokens = token.job.cached_tokens
            output.text += self._identity.token_text
            output.token_ids += struct.pack("<i", token.token_id)
            if token.last:
                output.finish_reason = pb.LENGTH
        for job in ended:
            link = job.link
            assert isinstance(link, _Link)
            link.jobs.pop(job.request_id, None)
            usage = pb.Usage(
                prompt_tokens=job.prompt_tokens,
                cached_tokens=job.cached_tokens,
                completion_tokens=job.num_tokens * job.num_choices,
            )
            link.step.done.add(request_id=job.request_id, usage=usage)
        changes = self._cache.take_changes()
        for link in self._links:
            for change in changes:
                if change.sequence > link.cache_sequence:
                    link.step.cache_events.append(_event(change))
                    link.cache_sequence = change.sequence
            link.ready.set()

    @staticmethod
    def _started(job: Job, link: _Link) -> None:
        link.assigned_tokens -= job.expected_tokens
        job.expected_tokens = 0

    def _fill(self, load: pb.Load) -> None:
        load.running_sequences = self.engine.num_running
        load.waiting_sequences = self.engine.num_waiting
        load.steps_total = self.engine.steps_total
        load.prompt_tokens_total = self.engine.prompt_tokens_total
        load.cached_tokens_total = self.engine.cached_tokens_total
        load.assigned_tokens = sum(link.assigned_tokens for link in self._links)

    def _snapshot(self) -> list[pb.CacheEvent]:
        return [
            pb.CacheEvent(kind=pb.CacheEvent.STORED, digest=name, num_tokens=num_tokens)
            for name, num_tokens in self._cache.snapshot()
        ]

    def _hello(self) -> pb.ToGateway:
        me = self._identity
        hello = pb.WorkerHello(
            protocol=1,
            worker=me.name,
            incarnation=self._incarnation,
            model=me.model,
            task="generate",
            max_model_len=10_000_000,
            prefix_cache=me.prefix_cache,
            page_size=16,
            cache_tokens=me.cache_tokens,
            max_running_sequences=self._pace.max_running,
            max_waiting_sequences=MAX_WAITING,
            snapshot=self._snapshot(),
            cache_sequence=self._cache.sequence,
        )
        return pb.ToGateway(hello=hello)


def _job(submit: pb.Submit, link: _Link) -> Job:
    chain = _chain(submit)
    return Job(
        request_id=submit.request_id,
        link=link,
        seed=submit.sampling.seed,
        num_choices=max(1, submit.n),
        num_tokens=submit.stopping.max_tokens or 16,
        prompt_tokens=max(1, chain[-1].num_tokens) if chain else 1,
        chain=chain,
        expected_tokens=submit.expected_tokens,
        given={one.choice: len(one.token_ids) // 4 for one in submit.resume},
        finished={one.choice for one in submit.resume if one.finished},
    )


def _chain(submit: pb.Submit) -> list[Mark]:
    """The whole prompt piece by piece: messages, or what lies between the named places."""
    kind = submit.WhichOneof("prompt")
    if kind == "chat":
        names = {one.num_messages: one.digest for one in submit.boundaries}
        messages = json.loads(submit.chat.messages)
        pieces = [(json.dumps(one).encode(), _size_of(one)) for one in messages]
        # The template's variables and the tools stand in front of everything.
        start = submit.namespace + submit.chat.template_kwargs
        if submit.chat.tools:
            pieces.insert(0, (submit.chat.tools, -(-len(submit.chat.tools) // 4)))
            names = {place + 1: name for place, name in names.items()}
        return _marks(start, pieces, names)
    if kind == "text":
        ends = {one.num_chars: one.digest for one in submit.boundaries}
        cuts = _cuts(ends, len(submit.text))
        texts = [submit.text[start:end] for start, end in pairwise(cuts)]
        pieces = [(text.encode(), _size(text)) for text in texts]
    else:
        ends = {one.num_tokens: one.digest for one in submit.boundaries}
        cuts = _cuts(ends, len(submit.token_ids) // 4)
        pieces = [
            (submit.token_ids[4 * start : 4 * end], end - start) for start, end in pairwise(cuts)
        ]
    names = {k: ends[cut] for k, cut in enumerate(cuts) if cut in ends}
    return _marks(submit.namespace, pieces, names)


def _marks(
    namespace: bytes, pieces: list[tuple[bytes, int]], names: dict[int, bytes]
) -> list[Mark]:
    """The ends of the pieces; names: of what lies behind so many pieces."""
    state, total, marks = xxh3_128(namespace), 0, []
    for number, (content, size) in enumerate(pieces, 1):
        state.update(len(content).to_bytes(4, "little") + content)
        total += size
        marks.append(Mark(state.digest(), total, names.get(number, b"")))
    return marks


def _cuts(ends: dict[int, bytes], length: int) -> list[int]:
    """Where a plain prompt is cut: where a name stands, and every so often."""
    return sorted({0, length, *range(_GRAIN, length, _GRAIN), *(e for e in ends if e < length)})


def _size_of(message: dict[str, object]) -> int:
    """Tokens of a message: of its text, and of what else it says."""
    content = message.get("content")
    if isinstance(content, str) and message.keys() <= {"role", "content"}:
        return _size(content)
    return max(_size(json.dumps(message)), 1)


def _size(text: str) -> int:
    counted = _COUNT.match(text)
    return int(counted[1]) if counted else -(-len(text) // 4)


def _event(change: Change) -> pb.CacheEvent:
    kind = pb.CacheEvent.STORED if change.kind == "stored" else pb.CacheEvent.EVICTED
    return pb.CacheEvent(kind=kind, digest=change.name, num_tokens=change.num_tokens)


async def serve(workers: list[tuple[Identity, int]], pace: Pace) -> None:
    """Serve all of them, each on its port, for ever."""
    servers, engines = [], []
    for identity, port in workers:
        server = grpc.aio.server(
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)]
        )
        worker = FakeWorker(identity, pace)
        worker_pb2_grpc.add_WorkerServicer_to_server(worker, server)
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        servers.append(server)
        engines.append(asyncio.create_task(worker.engine.run()))
    print("ready", flush=True)
    await asyncio.gather(*engines)


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", required=True, help="comma-separated; one worker each")
    parser.add_argument("--first", type=int, default=0, help="number in the first worker's name")
    parser.add_argument("--model", default="fake-model")
    parser.add_argument("--cache-tokens", type=int, default=1_000_000)
    parser.add_argument("--prefix-cache", choices=("radix", "off"), default="radix")
    parser.add_argument("--prefill-tokens-s", type=float, default=8000.0)
    parser.add_argument("--tick-ms", type=float, default=20.0)
    parser.add_argument("--max-running", type=int, default=256)
    arguments = parser.parse_args()
    pace = Pace(arguments.prefill_tokens_s, arguments.tick_ms / 1000, arguments.max_running)
    cache = (arguments.cache_tokens, arguments.prefix_cache)
    workers = [
        (Identity(f"w{number}", arguments.model, *cache), int(port))
        for number, port in enumerate(arguments.ports.split(","), arguments.first)
    ]
    uvloop.run(serve(workers, pace))


if __name__ == "__main__":
    main()
