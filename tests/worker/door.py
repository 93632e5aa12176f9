"""The worker behind its real gRPC door, on the chain model, and a gateway's end of a link."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grpc.aio

from proto import worker_pb2 as pb
from proto import worker_pb2_grpc
from tests.worker.chain import VOCAB, ChainRunner
from tests.worker.loaded import tokenizer_of
from worker.cache.interface import PrefixCache
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.engine import Engine, StepReport
from worker.health import Health
from worker.intake import Intake
from worker.link import LinkServicer, WorkerState
from worker.live import ServiceLimits
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import pack_tokens, unpack_tokens
from worker.service import Service
from worker.text.chat import ChatTemplate
from worker.wire import Identity

PAGES, SIZE, MAX_LEN = 256, 4, 512
GREEDY = pb.Sampling(temperature=0, top_p=1, repetition_penalty=1)


class Worker:
    """Everything of a worker but the model."""

    def __init__(
        self,
        folder: Path,
        make_cache: Callable[[PagePool], PrefixCache] = RadixCache,
        name: str = "w",
    ) -> None:
        self.tokenizer = tokenizer_of(folder)
        template = ChatTemplate.load(folder, self.tokenizer, MAX_LEN)
        self.intake = Intake(self.tokenizer, template, MAX_LEN, random.Random(0))
        self.service = Service(self.intake, self.tokenizer, ServiceLimits(8, 24))
        self.pool = PagePool(PAGES, SIZE, keep_freed=True)
        self.cache = make_cache(self.pool)
        self.runner = ChainRunner(PAGES, SIZE)
        loop = asyncio.get_running_loop()

        def on_report(report: StepReport) -> None:
            loop.call_soon_threadsafe(self.service.on_report, report)

        scheduler = Scheduler(self.cache, SchedulerLimits(64, 8))
        self.engine = Engine(scheduler, self.runner, on_report)
        self.service.attach(self.engine)
        state = WorkerState(
            lambda: self.engine.load, self.engine.snapshot, self.tokenizer.token_bytes
        )
        identity = Identity(
            name, "i1", "m", "generate", MAX_LEN, "radix", SIZE, PAGES * SIZE, 8, 24, "0", VOCAB
        )
        self.server = grpc.aio.server()
        self.servicer = LinkServicer(identity, self.service, state, heartbeat_s=0.2)
        self.servicer.serve(self.server)
        self.health = Health()
        self.health.serve(self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    async def quiet(self) -> None:
        """Waits until nothing is live and no page is in use."""
        async with asyncio.timeout(10):
            await self.service.idle()
            while self.engine.load.used_pages or self.engine.load.waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


class CacheView:
    """What a gateway knows of a worker's cache; that no event is missing is checked as it does."""

    def __init__(self) -> None:
        self.stored: dict[bytes, int] = {}
        self.sequence = 0
        self.snapshots = 0

    def restart(self, stored: Iterable[pb.CacheEvent], sequence: int) -> None:
        assert sequence >= self.sequence
        self.stored = {event.digest: event.num_tokens for event in stored}
        self.sequence = sequence

    def take(self, step: pb.Step) -> None:
        if step.HasField("snapshot"):
            self.restart(step.snapshot.stored, step.cache_sequence)
            self.snapshots += 1
            return
        assert step.cache_sequence == self.sequence + len(step.cache_events)
        self.sequence = step.cache_sequence
        for event in step.cache_events:
            if event.kind == pb.CacheEvent.STORED:
                self.stored[event.digest] = event.num_tokens
            elif event.kind == pb.CacheEvent.EVICTED:
                del self.stored[event.digest]
            else:
                self.stored.clear()


class Client:
    """A gateway's end of a link, with everything that came by request."""

    def __init__(self, to: int | grpc.aio.Channel) -> None:
        """to: the worker's port, or a channel to it."""
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{to}") if isinstance(to, int) else to
        self.call = worker_pb2_grpc.WorkerStub(self.channel).Link()
        self.tokens: dict[tuple[int, int], list[int]] = {}
        self.text: dict[tuple[int, int], str] = {}
        self.finish: dict[tuple[int, int], str] = {}
        self.ends: dict[int, list[pb.Done | pb.Failed]] = {}
        self.told: dict[int, list[tuple[int, int]]] = {}
        self.scores: dict[int, list[list[pb.PromptScore]]] = {}
        self.events: list[pb.CacheEvent] = []
        self.last = pb.Step()
        self.view = CacheView()

    async def greet(self, protocol: int = 1) -> pb.WorkerHello:
        await self.call.write(pb.ToWorker(hello=pb.GatewayHello(protocol=protocol, gateway="test")))
        message = await self.call.read()
        assert isinstance(message, pb.ToGateway)
        self.view.restart(message.hello.snapshot, message.hello.cache_sequence)
        return message.hello

    async def submit(self, number: int, tokens: list[int] | None = None, **more: Any) -> None:
        submit = pb.Submit(request_id=number, n=1, sampling=GREEDY)
        submit.stopping.max_tokens = 6
        if tokens is not None:
            submit.token_ids = pack_tokens(tokens)
        submit.MergeFrom(pb.Submit(**more))
        await self.call.write(pb.ToWorker(submit=submit))

    async def cancel(self, number: int) -> None:
        await self.call.write(pb.ToWorker(cancel=pb.Cancel(request_id=number)))

    async def resync(self) -> None:
        await self.call.write(pb.ToWorker(resync=pb.Resync()))

    async def take(self) -> None:
        message = await self.call.read()
        assert isinstance(message, pb.ToGateway)
        step = message.step
        assert step.sequence == self.last.sequence + 1
        assert step.own_assigned_tokens <= step.load.assigned_tokens
        assert step.load.steps_total >= self.last.load.steps_total
        self.view.take(step)
        self.last = step
        for output in step.outputs:
            key = (output.request_id, output.choice)
            assert output.request_id not in self.ends, "output after the end"
            self.tokens.setdefault(key, []).extend(unpack_tokens(output.token_ids))
            self.text[key] = self.text.get(key, "") + output.text
            told = (output.prompt_tokens, output.cached_tokens)
            self.told.setdefault(output.request_id, []).append(told)
            if output.prompt_scores:
                self.scores.setdefault(output.request_id, []).append([*output.prompt_scores])
            if output.finish_reason:
                assert key not in self.finish
                self.finish[key] = pb.FinishReason.Name(output.finish_reason)
        for done in step.done:
            self.ends.setdefault(done.request_id, []).append(done)
        for failed in step.failed:
            self.ends.setdefault(failed.request_id, []).append(failed)
        self.events += step.cache_events

    async def until(self, *numbers: int) -> None:
        async with asyncio.timeout(20):
            while not all(number in self.ends for number in numbers):
                await self.take()

    def failure(self, number: int) -> pb.Failed:
        (end,) = self.ends[number]
        assert isinstance(end, pb.Failed)
        return end

    def usage(self, number: int) -> pb.Usage:
        (end,) = self.ends[number]
        assert isinstance(end, pb.Done)
        return end.usage

    def scored(self, number: int) -> list[pb.PromptScore]:
        """The prompt's scores, which come at most once."""
        [scores] = self.scores.get(number, [[]])
        return scores

    async def leave(self) -> None:
        self.call.cancel()
        await self.channel.close(None)
