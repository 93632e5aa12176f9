"""The worker behind its real gRPC door, on the chain model: one end for every request."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from math import inf, nan
from typing import Any

import grpc
import grpc.aio
import pytest

from proto import worker_pb2 as pb
from tests.worker.chain import VOCAB, expected
from tests.worker.door import MAX_LEN, PAGES, Client, Worker
from worker.__main__ import drain
from worker.entry import INLINE_BYTES, LONG_AT_ONCE
from worker.errors import InternalError
from worker.health import SERVICE
from worker.link import Outgoing, WorkerState
from worker.prepared import Prepared
from worker.sequence import pack_tokens
from worker.submission import Submission
from worker.timing import Timing

ENDLESS = pb.Stopping(max_tokens=500, ignore_eos=True)


def sampling(**fields: Any) -> pb.Sampling:
    return pb.Sampling(**fields)


def assert_true(value: bool) -> None:
    assert value


async def test_token_ids_come_back_as_the_models_answer_with_usage(client: Client) -> None:
    await client.submit(1, [1, 2, 3])
    await client.until(1)
    assert client.tokens[1, 0] == expected([1, 2, 3], 6)
    assert client.finish[1, 0] == "LENGTH"
    usage = client.usage(1)
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (3, 0, 6)


async def test_every_choice_ends_and_the_request_ends_once(client: Client) -> None:
    await client.submit(1, list(range(30)), n=4)
    await client.until(1)
    assert {client.finish[1, choice] for choice in range(4)} == {"LENGTH"}
    assert all(client.tokens[1, c] == expected(list(range(30)), 6) for c in range(4))
    assert client.usage(1).completion_tokens == 24
    assert client.usage(1).cached_tokens == 0


async def test_a_repeated_prompt_is_counted_as_cached(client: Client) -> None:
    for number in (1, 2):
        await client.submit(number, list(range(30)))
        await client.until(number)
    assert client.usage(2).cached_tokens == 29
    for number, cached in ((1, 0), (2, 29)):
        first, *later = client.told[number]
        assert first == (30, cached), "the first output tells"
        assert set(later) == {(0, 0)}


async def test_a_stop_string_ends_the_choice_and_is_not_part_of_the_text(
    worker: Worker, client: Client
) -> None:
    await client.submit(1, [1, 2, 3])
    await client.until(1)
    whole = client.text[1, 0]
    stop = whole[len(whole) // 2 :][:3]
    await client.submit(2, [1, 2, 3], stopping=pb.Stopping(stop=[stop], max_tokens=400))
    await client.until(2)
    assert client.text[2, 0] == whole[: whole.index(stop)]
    assert client.finish[2, 0] == "STOP"
    await worker.quiet()


async def test_stop_ids_and_min_tokens_rule_the_end(client: Client) -> None:
    answer = expected([1, 2, 3], 6)
    await client.submit(1, [1, 2, 3], stopping=pb.Stopping(stop_token_ids=[answer[2]]))
    await client.until(1)
    assert client.tokens[1, 0] == answer[:3]
    assert client.finish[1, 0] == "STOP"


@pytest.mark.parametrize(
    ("more", "code", "param"),
    [
        ({"token_ids": b""}, "INVALID_REQUEST", "prompt"),
        ({"token_ids": b"\x01\x00"}, "INVALID_REQUEST", "prompt"),
        ({"token_ids": pack_tokens([1, 10**6])}, "INVALID_REQUEST", "prompt"),
        ({"token_ids": pack_tokens([1, -1])}, "INVALID_REQUEST", "prompt"),
        ({"token_ids": pack_tokens([1] * MAX_LEN)}, "CONTEXT_LENGTH_EXCEEDED", "prompt"),
        ({"text": ""}, "INVALID_REQUEST", "prompt"),
        ({"text": "a b " * 500_000}, "CONTEXT_LENGTH_EXCEEDED", "prompt"),
        ({"chat": pb.ChatPrompt(messages=b"[")}, "INVALID_REQUEST", "messages"),
        ({"chat": pb.ChatPrompt(messages=b"{}")}, "INVALID_REQUEST", "messages"),
        ({"chat": pb.ChatPrompt(messages=b"[" * 10000)}, "INVALID_REQUEST", "messages"),
        (
            {
                "chat": pb.ChatPrompt(
                    messages=b'[{"role":"user","content":"' + b"a " * 30_000 + b'"}]'
                )
            },
            "CONTEXT_LENGTH_EXCEEDED",
            "messages",
        ),
        (
            {"text": "a", "stopping": pb.Stopping(max_tokens=MAX_LEN)},
            "CONTEXT_LENGTH_EXCEEDED",
            "max_tokens",
        ),
        (
            {"text": "a", "stopping": pb.Stopping(min_tokens=99)},
            "INVALID_REQUEST",
            "min_tokens",
        ),
        (
            {"text": "a", "stopping": pb.Stopping(stop_token_ids=[10**7])},
            "INVALID_REQUEST",
            "stop_token_ids",
        ),
        ({"text": "a", "stopping": pb.Stopping(stop=[""])}, "INVALID_REQUEST", "stop"),
        (
            {"text": "a", "sampling": pb.Sampling(logit_bias={10**7: 1.0})},
            "INVALID_REQUEST",
            "logit_bias",
        ),
        *[
            ({"text": "a", "sampling": sampling(**{name: value})}, "INVALID_REQUEST", name)
            for name, value in (
                ("temperature", nan),
                ("temperature", -1.0),
                ("top_p", nan),
                ("min_p", nan),
                ("min_p", 2.0),
                ("presence_penalty", inf),
                ("frequency_penalty", nan),
                ("repetition_penalty", nan),
                ("repetition_penalty", -1.0),
                ("logit_bias", {1: nan}),
                ("logit_bias", {1: -inf}),
            )
        ],
    ],
    ids=range(27),
)
async def test_what_no_model_can_take_is_refused_by_name(
    client: Client, more: dict[str, Any], code: str, param: str
) -> None:
    await client.submit(1, **more)
    await client.until(1)
    failure = client.failure(1)
    assert (pb.FailureCode.Name(failure.code), failure.param) == (code, param)
    assert failure.message.endswith(".")


async def test_too_many_max_tokens_are_refused_with_what_the_prompt_has(client: Client) -> None:
    await client.submit(1, [1, 2, 3], stopping=pb.Stopping(max_tokens=MAX_LEN))
    await client.until(1)
    assert f"has 3 tokens and max_tokens is {MAX_LEN};" in client.failure(1).message


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"sampling": pb.Sampling(min_p=2)}, "min_p is 2; it must be from 0 to 1."),
        (
            {"sampling": pb.Sampling(logit_bias={7: nan})},
            "logit_bias is nan for token id 7; it must be finite.",
        ),
        ({"top_logprobs": 21}, "top_logprobs is 21; it must be at most 20."),
        (
            {"stopping": pb.Stopping(min_tokens=99)},
            "min_tokens is 99; it must be at most max_tokens, which is 6.",
        ),
    ],
)
async def test_a_refusal_says_field_value_and_range(
    client: Client, more: dict[str, Any], says: str
) -> None:
    await client.submit(1, [1, 2, 3], **more)
    await client.until(1)
    assert client.failure(1).message == says


async def test_long_prompts_count_while_they_are_tokenised_and_not_when_taken_back(
    worker: Worker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, prepared, prepare = threading.Event(), [], worker.intake.prepare

    def slow(submission: Submission) -> Prepared:
        assert_true(go.wait(10))
        prepared.append(submission.request_id)
        return prepare(submission)

    monkeypatch.setattr(worker.intake, "prepare", slow)
    for number in range(1, 34):
        await client.submit(number, [5] * INLINE_BYTES)
    await client.until(33)
    assert pb.FailureCode.Name(client.failure(33).code) == "OVERLOADED"
    for number in range(1, 33):
        await client.cancel(number)
    await client.until(*range(1, 33))
    go.set()
    await worker.quiet()
    assert len(prepared) <= LONG_AT_ONCE


async def test_a_full_queue_is_said_at_once_while_the_others_finish(
    worker: Worker, client: Client
) -> None:
    go = threading.Event()
    worker.runner.on_layer = lambda: assert_true(go.wait(10))
    for number in range(1, 60):
        await client.submit(number, [number, 5])
    await client.until(*range(33, 60))
    codes = {pb.FailureCode.Name(client.failure(number).code) for number in range(33, 60)}
    assert codes == {"OVERLOADED"}
    go.set()
    await client.until(*range(1, 33))
    assert all(client.tokens[number, 0] == expected([number, 5], 6) for number in range(1, 33))
    assert all(len(ends) == 1 for ends in client.ends.values())


async def test_a_failed_step_fails_its_requests_without_words_of_the_inside(
    worker: Worker, client: Client
) -> None:
    worker.runner.fail_next = True
    await client.submit(1, [1, 2])
    await client.until(1)
    assert pb.FailureCode.Name(client.failure(1).code) == "INTERNAL"
    assert "planted" not in client.failure(1).message
    await client.submit(2, [1, 2])
    await client.until(2)
    assert client.tokens[2, 0] == expected([1, 2], 6)


async def test_a_worker_that_leaves_hands_back_what_waits_at_once_and_what_runs_in_the_end(
    worker: Worker, client: Client
) -> None:
    worker.runner.on_layer = lambda: time.sleep(0.01)
    for number in range(1, 9):
        await client.submit(number, [number, 2, 3], stopping=ENDLESS)
    while len(client.tokens) < 8:
        await client.take()
    await client.submit(9, [9, 2], expected_tokens=2)
    while not client.last.load.waiting_sequences:
        await client.take()
    leaving = asyncio.create_task(drain(worker.service, 0.2))
    await client.until(9)
    assert not leaving.done()
    await client.submit(10, [1, 2])
    await client.until(10)
    assert set(client.ends) == {9, 10}
    assert client.last.load.draining
    await client.until(*range(1, 9))
    codes = {pb.FailureCode.Name(client.failure(number).code) for number in range(1, 11)}
    assert codes == {"DRAINING"}
    await leaving
    assert client.last.load.assigned_tokens == 0


async def test_what_finishes_while_the_worker_leaves_is_done(
    worker: Worker, client: Client
) -> None:
    await client.submit(1, [1, 2, 3], stopping=pb.Stopping(max_tokens=50))
    while (1, 0) not in client.tokens:
        await client.take()
    leaving = asyncio.create_task(drain(worker.service, 20))
    await client.until(1)
    assert client.tokens[1, 0] == expected([1, 2, 3], 50)
    assert client.usage(1).completion_tokens == 50
    await leaving


async def test_what_is_still_tokenised_when_the_worker_leaves_is_handed_back(
    worker: Worker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, prepare = threading.Event(), worker.intake.prepare

    def slow(submission: Submission) -> Prepared:
        assert_true(go.wait(10))
        return prepare(submission)

    monkeypatch.setattr(worker.intake, "prepare", slow)
    await client.submit(1, [5] * INLINE_BYTES)
    while not worker.service.num_live:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    worker.service.leave()
    await client.until(1)
    assert pb.FailureCode.Name(client.failure(1).code) == "DRAINING"
    go.set()


async def test_what_a_worker_hands_back_leaves_before_its_link_ends(
    worker: Worker, client: Client
) -> None:
    numbers = range(1, 33)
    go = threading.Event()
    worker.runner.on_layer = lambda: assert_true(go.wait(10))
    for number in numbers:
        await client.submit(number, [1, 2, 3], stopping=ENDLESS)
    async with asyncio.timeout(20):
        while worker.service.tallies.accepted < len(numbers):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await drain(worker.service, 0)
    worker.servicer.close()
    go.set()
    await client.until(*numbers)
    assert all(len(client.ends[number]) == 1 for number in numbers)
    codes = {
        pb.FailureCode.Name(end.code)
        for (end,) in client.ends.values()
        if isinstance(end, pb.Failed)
    }
    assert "DRAINING" in codes
    assert codes <= {"DRAINING", "OVERLOADED"}


async def test_cancel_ends_once_at_every_stage(worker: Worker, client: Client) -> None:
    chance = random.Random(3)
    for number in range(1, 301):
        prompt = [chance.randrange(VOCAB) for _ in range(chance.choice([3, 40, 200]))]
        await client.submit(number, prompt, stopping=pb.Stopping(max_tokens=30))
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.8:
            await client.cancel(number)
        if number % 20 == 0:
            await client.until(*range(1, number + 1))
    assert all(len(ends) == 1 for ends in client.ends.values())
    codes = {
        pb.FailureCode.Name(end.code)
        for (end,) in client.ends.values()
        if isinstance(end, pb.Failed)
    }
    assert codes <= {"CANCELLED", "OVERLOADED"}
    assert "CANCELLED" in codes
    await worker.quiet()


async def test_links_that_break_at_any_moment_leave_nothing_behind(worker: Worker) -> None:
    chance = random.Random(4)

    async def one(number: int) -> None:
        client = Client(worker.port)
        await client.greet()
        for request in range(1, 6):
            prompt = [chance.randrange(VOCAB) for _ in range(chance.choice([2, 50, 300]))]
            await client.submit(request, prompt, stopping=pb.Stopping(max_tokens=40))
        for _ in range(number % 5):
            await client.take()
        await client.leave()

    for start in range(0, 100, 10):
        await asyncio.gather(*(one(number) for number in range(start, start + 10)))
    await worker.quiet()
    assert worker.service.tallies.accepted > 300
    survivor = Client(worker.port)
    await survivor.greet()
    await survivor.submit(1, [9, 9, 9])
    await survivor.until(1)
    assert survivor.tokens[1, 0] == expected([9, 9, 9], 6)
    await survivor.leave()


async def test_a_gateway_of_another_protocol_is_refused_with_a_sentence(worker: Worker) -> None:
    client = Client(worker.port)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.greet(protocol=99)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "protocol 1" in (caught.value.details() or "")
    await client.channel.close(None)


async def test_a_stream_without_hello_is_refused(worker: Worker) -> None:
    client = Client(worker.port)
    await client.call.write(pb.ToWorker(cancel=pb.Cancel(request_id=1)))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.call.read()
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    await client.channel.close(None)


async def test_an_idle_link_still_hears_a_heartbeat_with_the_load(client: Client) -> None:
    await client.take()
    await client.take()
    assert client.last.load.total_pages == PAGES


def chat(text: str) -> pb.ChatPrompt:
    messages = [{"role": "system", "content": text}, {"role": "user", "content": "Hi."}]
    return pb.ChatPrompt(messages=json.dumps(messages).encode())


async def test_boundaries_are_reported_stored_and_evicted_and_again_in_a_new_hello(
    worker: Worker, client: Client
) -> None:
    boundary = pb.Boundary(digest=b"d" * 16, num_messages=1)
    await client.submit(1, chat=chat("You are a tree. " * 5), boundaries=[boundary])
    await client.until(1)
    (stored,) = client.events
    assert stored.kind == pb.CacheEvent.STORED
    assert stored.digest == b"d" * 16
    assert 20 < stored.num_tokens < client.usage(1).prompt_tokens
    second = Client(worker.port)
    hello = await second.greet()
    assert [(one.digest, one.num_tokens) for one in hello.snapshot] == [
        (stored.digest, stored.num_tokens)
    ]
    await second.leave()
    for number in range(2, 8):
        await client.submit(number, [number] * 400, stopping=pb.Stopping(max_tokens=8))
        await client.until(number)
    assert client.events[-1].kind == pb.CacheEvent.EVICTED
    assert client.events[-1].digest == b"d" * 16


async def test_health_and_reflection_stand_beside_the_link(worker: Worker) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    await worker.health.set_serving(serving=True)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{worker.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        await worker.health.set_serving(serving=False)
        answer = await stub.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_worker_that_leaves_ends_its_links_in_good_order(worker: Worker) -> None:
    client = Client(worker.port)
    await client.greet()
    await client.submit(1, [1, 2, 3])
    await client.until(1)
    worker.servicer.close()
    while isinstance(await client.call.read(), pb.ToGateway):
        pass
    assert await client.call.code() is grpc.StatusCode.OK
    await client.channel.close(None)


async def test_cache_events_go_on_from_where_the_hello_ended(
    worker: Worker, client: Client
) -> None:
    """Links open while boundaries are stored: snapshot and events together miss nothing."""

    async def open_one() -> tuple[Client, int]:
        other = Client(worker.port)
        return other, (await other.greet()).cache_sequence

    opened = []
    for number in range(1, 13):
        digest = bytes([number]) * 16
        boundary = pb.Boundary(digest=digest, num_messages=1)
        await client.submit(number, chat=chat(f"{number} is a tree. " * 5), boundaries=[boundary])
        opened.append(await open_one())
    await client.until(*range(1, 13))
    total = client.last.cache_sequence
    assert total >= 12
    for other, start in opened:
        while other.last.cache_sequence < total:
            await other.take()
        assert len(other.events) == total - start
        await other.leave()


async def test_a_dead_engines_requests_are_not_failed_but_lost_with_the_link(
    worker: Worker,
) -> None:
    """The gateway sees a lost worker, and goes on elsewhere."""
    client, go = Client(worker.port), threading.Event()
    await client.greet()
    worker.runner.on_layer = lambda: assert_true(go.wait(10))
    await client.submit(1, [1, 5])
    while not worker.service.num_live:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    worker.service.abandon()
    await client.submit(2, [2, 5])
    await client.until(2)
    assert pb.FailureCode.Name(client.failure(2).code) == "DRAINING"
    async with asyncio.timeout(10):
        await drain(worker.service, 60)
    assert 1 not in client.ends
    worker.servicer.close()
    while isinstance(message := await client.call.read(), pb.ToGateway):
        assert not message.step.failed
    await client.channel.close(None)
    go.set()
    await worker.quiet()


async def test_what_gathers_while_a_step_is_sent_leaves_before_the_end(worker: Worker) -> None:
    state = WorkerState(lambda: worker.engine.load, worker.engine.snapshot, lambda _: b"")
    link = Outgoing("test", worker.service, state, 0)
    steps = link.steps(heartbeat_s=10)
    link.flush([])
    await anext(steps)
    link.failed(7, InternalError(), Timing(0.5))
    link.flush([])
    link.close()
    assert [[one.request_id for one in message.step.failed] async for message in steps] == [[7]]


async def test_a_prompts_scores_come_once_with_the_first_output(client: Client) -> None:
    for number in (1, 2):
        await client.submit(number, list(range(700, 720)), score_prompt=True, n=2)
        await client.until(number)
    cold, warm = (client.scored(number) for number in (1, 2))
    assert [one.token_id for one in cold] == list(range(700, 720))
    assert cold[0].rank == 0
    assert all(one.rank >= 1 and one.logprob < 0 for one in cold[1:])
    assert warm == cold
    assert client.usage(2).cached_tokens > 0


async def test_what_was_begun_elsewhere_has_given_its_prompts_scores(client: Client) -> None:
    resume = [pb.Resume(choice=0, token_ids=pack_tokens([5]), text_chars=0)]
    await client.submit(1, list(range(700, 720)), score_prompt=True, resume=resume)
    await client.until(1)
    assert client.scored(1) == []
