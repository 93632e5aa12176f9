"""The stream to a worker: greetings, broken streams, and one failure per request."""

from __future__ import annotations

import pytest

from gateway.config import LinkConfig
from gateway.errors import WorkerLost
from gateway.fleet.workers import Claim
from gateway.request import (
    Ask,
    Decoding,
    Done,
    Event,
    Failed,
    FinishReason,
    Output,
    Sampling,
    Stopping,
    TokenPrompt,
)
from proto import worker_pb2 as pb
from tests.gateway.conftest import StartWorker
from tests.gateway.fake_worker import Line, silence, words
from tests.gateway.fleet.conftest import ASK, Links, ended, error, output, stored


async def test_a_request_gets_its_outputs_in_order_and_one_end(
    links: Links, start_worker: StartWorker
) -> None:
    worker = await start_worker()
    links.add(worker)
    door = (await links.linked()).door
    events: list[Event] = []
    with door.submit(ASK, events.append):
        await ended(events, links)
    assert "".join(output(event).text for event in events[:-1]) == "Hello big world"
    assert output(events[-2]).finish_reason is FinishReason.STOP
    assert isinstance(events[-1], Done)
    assert worker.cancels == []
    assert worker.hellos[0].gateway == "g0"


async def test_the_worker_says_who_it_is(links: Links, start_worker: StartWorker) -> None:
    links.add(await start_worker(name="w7", model="qwen", incarnation="abc"))
    info = (await links.linked("w7")).info
    assert (info.model, info.incarnation, info.page_size) == ("qwen", "abc", 16)
    assert (info.task, info.prefix_cache, info.max_model_len) == ("generate", "radix", 2048)


async def test_every_setting_crosses_the_link(links: Links, start_worker: StartWorker) -> None:
    worker = await start_worker()
    links.add(worker)
    sampling = Sampling(0.5, 0.9, 4, 0.125, 1.5, -1.5, 1.25, 2**64 - 1, {3: -100.0})
    stopping = Stopping(9, ("a", "b"), (1, 2), 3, True, True)
    ask = Ask("t", "acme", b"s", TokenPrompt(b"\1\0\0\0"), Decoding(sampling, stopping, 2, 0))
    events: list[Event] = []
    with (await links.linked()).door.submit(ask, events.append):
        await ended(events, links)
    submit = worker.submits[0]
    assert submit.sampling == pb.Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        min_p=0.125,
        presence_penalty=1.5,
        frequency_penalty=-1.5,
        repetition_penalty=1.25,
        seed=2**64 - 1,
        logit_bias={3: -100.0},
    )
    assert submit.stopping == pb.Stopping(
        max_tokens=9,
        stop=["a", "b"],
        stop_token_ids=[1, 2],
        min_tokens=3,
        ignore_eos=True,
        include_stop=True,
    )
    assert (submit.n, submit.top_logprobs, submit.token_ids) == (2, 0, b"\1\0\0\0")
    assert submit.HasField("top_logprobs")


async def test_leaving_the_context_early_cancels_once(
    links: Links, start_worker: StartWorker
) -> None:
    worker = await start_worker(script=silence)
    links.add(worker)
    events: list[Event] = []
    with (await links.linked()).door.submit(ASK, events.append):
        await links.until(lambda: len(worker.submits) == 1)
    await links.until(lambda: worker.cancels == [1])
    assert events == []


async def test_a_request_that_cannot_take_its_output_fails_alone(
    links: Links, start_worker: StartWorker
) -> None:
    worker = await start_worker()
    links.add(worker)
    door = (await links.linked()).door
    broken: list[Event] = []
    fine: list[Event] = []

    def deliver(event: Event) -> None:
        broken.append(event)
        if isinstance(event, Output):
            raise RuntimeError("the client is gone")

    with door.submit(ASK, deliver), door.submit(ASK, fine.append):
        await ended(fine, links)
    assert isinstance(fine[-1], Done)
    assert len(broken) == 2
    assert isinstance(broken[-1], Failed)
    assert worker.cancels == [1]


async def test_a_broken_stream_ends_each_of_its_requests_once(
    links: Links, start_worker: StartWorker
) -> None:
    worker = await start_worker(script=silence)
    links.add(worker)
    door = (await links.linked()).door
    all_events: list[list[Event]] = [[] for _ in range(20)]
    holds = [door.submit(ASK, events.append) for events in all_events]
    for hold in holds:
        hold.__enter__()
    await links.until(lambda: len(worker.submits) == 20)
    await worker.stop()
    await links.until(lambda: not links.fleet.ready)
    for hold, events in zip(holds, all_events, strict=True):
        hold.__exit__(None, None, None)
        assert [type(error(event)) for event in events] == [WorkerLost]
    with pytest.raises(WorkerLost), door.submit(ASK, print):
        pass


async def test_a_worker_that_comes_back_is_linked_again_as_new(
    links: Links, start_worker: StartWorker
) -> None:
    worker = await start_worker()
    links.add(worker)
    await links.linked()
    await worker.stop()
    await links.until(lambda: not links.fleet.ready)
    await start_worker(port=worker.port, incarnation="second")
    assert (await links.linked()).info.incarnation == "second"
    assert links.telemetry.incarnations.labels("w0")._value.get() == 2


async def test_a_worker_that_never_answers_the_hello_is_not_linked(
    links: Links, start_worker: StartWorker
) -> None:
    worker = await start_worker(greets=False)
    links.add(worker)
    await links.until(lambda: links.breaks("no_hello") >= 2)
    assert not links.fleet.ready
    worker.greets = True
    await links.linked()


async def test_a_worker_of_another_protocol_is_not_linked(
    links: Links, start_worker: StartWorker
) -> None:
    links.add(await start_worker(protocol=2))
    await links.until(lambda: links.breaks("protocol") + links.breaks("stream_ended") >= 2)
    assert not links.fleet.ready


async def test_a_worker_of_another_name_is_not_linked(
    links: Links, start_worker: StartWorker
) -> None:
    links.add(await start_worker(name="w1"), name="w0")
    await links.until(lambda: links.breaks("name") >= 1)
    assert not links.fleet.ready


async def test_of_two_workers_with_one_name_the_first_stays(
    links: Links, start_worker: StartWorker
) -> None:
    first, second = await start_worker(incarnation="a"), await start_worker(incarnation="b")
    links.add(first)
    await links.linked()
    links.add(second)
    await links.until(lambda: links.breaks("name") >= 2)
    assert (await links.linked()).info.incarnation == "a"


async def test_a_gap_in_the_sequence_breaks_the_stream(
    links: Links, start_worker: StartWorker
) -> None:
    worker = await start_worker(script=silence)
    links.add(worker)
    events: list[Event] = []
    with (await links.linked()).door.submit(ASK, events.append):
        worker.sequence_shift = 1
        await ended(events, links)
    assert isinstance(error(events[-1]), WorkerLost)
    assert links.breaks("sequence_gap") >= 1


async def test_a_silent_worker_is_declared_lost(links: Links, start_worker: StartWorker) -> None:
    worker = await start_worker(script=silence, heartbeat_s=3600)
    links.add(worker, LinkConfig(hello_timeout_s=5, silence_s=0.2, backoff_min_s=0.01))
    events: list[Event] = []
    with (await links.linked()).door.submit(ASK, events.append):
        await ended(events, links)
    assert links.breaks("silence") >= 1
    worker.heartbeat_s = 0.05
    await links.linked()


async def test_a_stream_that_the_worker_cancels_is_taken_up_again(
    links: Links, start_worker: StartWorker
) -> None:
    import grpc

    worker = await start_worker()

    async def script(submit: pb.Submit, line: Line) -> None:
        line.outbox.put_nowait(None)

    worker.script = script
    links.add(worker)
    events: list[Event] = []
    with (await links.linked()).door.submit(ASK, events.append):
        await ended(events, links)
    assert isinstance(error(events[-1]), WorkerLost)
    worker.script = words
    await links.linked()
    assert grpc is not None


async def test_load_and_cache_events_are_taken_over(
    links: Links, start_worker: StartWorker
) -> None:
    stored = pb.CacheEvent(kind=pb.CacheEvent.STORED, digest=b"d", num_tokens=16)
    worker = await start_worker(
        load=pb.Load(running_sequences=3, cached_pages=9, draining=True), cache_events=[stored] * 2
    )
    links.add(worker)
    live = await links.linked()
    await links.until(lambda: live.load.running_sequences == 3)
    assert live.load.cached_pages == 9
    assert links.fleet.serving("tiny") == {}
    assert links.telemetry.cache_events.labels("w0", "stored")._value.get() == 2


def evicted(name: str) -> pb.CacheEvent:
    return pb.CacheEvent(kind=pb.CacheEvent.EVICTED, digest=name.encode())


async def test_the_view_begins_with_the_hello_and_follows_the_steps(
    links: Links, start_worker: StartWorker
) -> None:
    fake = await start_worker()
    fake.snapshot = [stored("a"), stored("b", 128)]
    links.add(fake)
    view = (await links.linked()).view
    assert dict(view.stored) == {b"a": 64, b"b": 128}
    fake.lines[0].step(cache_events=[stored("c"), evicted("a")])
    await links.until(lambda: dict(view.stored) == {b"b": 128, b"c": 64})
    assert fake.resyncs == 0


async def test_missing_cache_events_bring_a_snapshot_and_break_nothing(
    links: Links, start_worker: StartWorker
) -> None:
    fake = await start_worker()
    links.add(fake)
    worker = await links.linked()
    fake.snapshot = [stored("x"), stored("y")]
    fake.lines[0].cache_sequence += 5
    fake.lines[0].step(cache_events=[stored("z")])
    await links.until(lambda: dict(worker.view.stored) == {b"x": 64, b"y": 64})
    assert fake.resyncs == 1
    assert links.fleet.workers() == (worker,)
    fake.lines[0].step(cache_events=[evicted("x")])
    await links.until(lambda: dict(worker.view.stored) == {b"y": 64})


async def test_a_new_link_forgets_what_the_old_one_told(
    links: Links, start_worker: StartWorker
) -> None:
    fake = await start_worker()
    fake.snapshot = [stored("a")]
    links.add(fake)
    await links.linked()
    await fake.stop()
    await links.until(lambda: not links.fleet.workers())
    fake.snapshot, fake.incarnation = [stored("b")], "second"
    await fake.start()
    assert dict((await links.linked()).view.stored) == {b"b": 64}


async def test_what_other_gateways_expect_of_a_worker_is_not_ours(
    links: Links, start_worker: StartWorker
) -> None:
    fake = await start_worker(load=pb.Load(assigned_tokens=900))
    links.add(fake)
    worker = await links.linked()
    await links.until(lambda: worker.others_tokens == 900)
    with links.fleet.lease(worker, Claim(1, 250)):
        assert worker.queued_tokens == 1150
    assert worker.queued_tokens == 900
