"""Conversations reach a live server in the order of their turns, as many at a time as wanted."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import pytest

from loadtest.errors import LoadTestError
from loadtest.load.arrivals import Arrival, Closed, Open, Replayed
from loadtest.load.figures import figures
from loadtest.load.kinds import chosen
from loadtest.load.prompt import Conversation
from loadtest.load.runs import Course, sent
from loadtest.load.samples import Sample
from loadtest.load.sending import Label, Plan, Sender, dues
from loadtest.load.target import Target
from tests.loadtest.load.server import FakeOpenAI, serving

CHATS = ["num_conversations=6", "turns=3", "system_tokens=30", "output_tokens=5"]


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with serving() as fake:
        yield fake


def chats(*settings: str) -> list[Conversation]:
    return chosen("chat", [*CHATS, *settings]).conversations(random.Random(0))


def send(server: FakeOpenAI, found: list[Conversation], plan: Plan) -> list[Sample]:
    return asyncio.run(Sender(Target(server.url, "fake"), plan).send(found))


@pytest.mark.parametrize("arrival", [Closed(2), Open(200.0), Open(50.0, 400.0, 0.3)])
def test_turns_keep_their_order_and_every_request_has_a_sample(
    server: FakeOpenAI, arrival: Arrival
) -> None:
    samples = send(server, chats(), Plan(arrival, think_s=0.001))
    turns: dict[str, list[int]] = defaultdict(list)
    ends: dict[str, float] = defaultdict(float)
    for one in samples:
        turns[one.conversation].append(one.turn)
        assert one.at_s >= ends[one.conversation]
        ends[one.conversation] = one.at_s + one.end_s
        assert (one.status, one.error, one.completion_tokens) == (200, "", 5)
        assert one.ttft_s is not None
        assert len(one.gaps_s) == 4
        assert one.worker in ("w0", "w1")
    assert len(samples) == 18
    assert set(map(tuple, turns.values())) == {(0, 1, 2)}


def test_a_closed_loop_has_so_many_under_way_and_no_more(server: FakeOpenAI) -> None:
    send(server, chats("output_tokens=40"), Plan(Closed(3)))
    assert server.most_under_way == 3


def test_the_oracle_agrees_with_a_cache_without_end(server: FakeOpenAI) -> None:
    samples = send(server, chats(), Plan(Closed(1)))
    found = figures(samples)
    assert found.hit_rate is not None
    assert found.hit_rate > 0.5
    # The server's words are the oracle's units here, but for words of more than eight characters.
    for one in samples:
        assert (one.prompt_tokens, one.cached_tokens) == (one.units, one.shared_units)
    assert found.hit_rate == found.oracle


def test_what_the_model_said_goes_into_later_turns_and_is_known(server: FakeOpenAI) -> None:
    samples = send(server, chats(), Plan(Closed(1), live=True))
    units = {(one.conversation, one.turn): one.units for one in samples}
    for one in samples:
        if one.turn:
            # The prompt before, the mark of the answer's role, and the answer itself.
            assert one.shared_units > units[one.conversation, one.turn - 1] + 1
    last = [body for body in server.bodies if len(body["messages"]) == 6]
    said = {
        one["content"] for body in last for one in body["messages"] if one["role"] == "assistant"
    }
    assert said == {" said0 said1 said2 said3 said4"}
    assert len(last) == 6


def test_what_was_written_stays_where_live_answers_are_not_asked_for(server: FakeOpenAI) -> None:
    found = chats()
    send(server, found, Plan(Closed(1)))
    written = [prompt.body["messages"] for turns in found for prompt in turns]
    assert [body["messages"] for body in server.bodies] == written


def test_tenants_send_with_their_own_keys(server: FakeOpenAI) -> None:
    found = chosen("tenants", ["tenants=2", "num_requests=12", "skew=0"]).conversations(
        random.Random(0)
    )
    keys = {"tenant-1": "one", "tenant-2": "two"}
    target = Target(server.url, "fake", keys)
    samples = asyncio.run(Sender(target, Plan(Closed(1))).send(found))
    sent_keys = [key.removeprefix("Bearer ") for key in server.keys]
    assert sent_keys == [keys[one.tenant] for one in samples]
    assert set(sent_keys) == {"one", "two"}
    assert list(figures(samples).tenants) == ["tenant-1", "tenant-2"]


def test_a_refused_request_is_a_sample_and_the_conversation_goes_on(server: FakeOpenAI) -> None:
    server.refuse = '"max_tokens": 5'
    samples = send(server, chats(), Plan(Closed(2)))
    assert {one.status for one in samples} == {429}
    assert len(samples) == 18
    assert figures(samples).errors == {"HTTP 429": 18}


def test_recorded_times_are_kept_and_only_where_there_are_some() -> None:
    found = [tuple(replace(one, at_s=10.0 + one.turn) for one in turns) for turns in chats()]
    assert dues(found, Plan(Replayed(4.0))) == [2.5] * 6
    assert dues(found, Plan(Closed(2))) == [0.0] * 6
    with pytest.raises(LoadTestError, match="no recorded times"):
        dues(chats(), Plan(Replayed()))


def test_a_replay_sends_nothing_before_its_time(server: FakeOpenAI) -> None:
    found = [tuple(replace(one, at_s=one.turn * 4.0) for one in turns) for turns in chats()]
    samples = send(server, found, Plan(Replayed(100.0)))
    for one in samples:
        assert one.at_s >= one.turn * 0.04
        assert one.at_s == pytest.approx(one.turn * 0.04 + one.late_s)


def test_rounds_have_prompts_of_their_own_and_both_sides_the_same(server: FakeOpenAI) -> None:
    with serving() as other:
        targets = {"A": Target(server.url, "fake"), "B": Target(other.url, "fake")}
        order: list[str] = []
        kind = chosen("short", ["num_prompts=3"])
        course = Course(Plan(Closed(1)), seed=5, rounds=3)
        samples = asyncio.run(sent(kind, targets, course, order.append))
    assert [words.split(",")[1].split(":")[0].strip() for words in order] == list("ABBAAB")
    prompts = [[body["prompt"] for body in one.bodies] for one in (server, other)]
    assert prompts[0] == prompts[1]
    assert len(set(prompts[0])) == 9
    keys = {(one.side, one.round, one.conversation) for one in samples}
    assert len(keys) == len(samples) == 18


def test_samples_say_what_they_belong_to(server: FakeOpenAI) -> None:
    sender = Sender(Target(server.url, "fake"), Plan(Closed(1)))
    [sample] = asyncio.run(sender.send([chats()[0][:1]], Label("B", 4)))
    assert (sample.side, sample.round) == ("B", 4)
