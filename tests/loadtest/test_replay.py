"""A replayed request is the recorded one: as many messages, tokens and answers as it stands for."""

from __future__ import annotations

import json
import time

import uvloop

from gateway.config import RoutingConfig
from loadtest.fake.engine import Pace
from loadtest.replay import Served, Speed, body, replay
from loadtest.replay_fleet import FleetWish, running
from loadtest.traces import Piece, Recorded

REQUEST = Recorded(0.0, (Piece("a", 512), Piece("ab", 1024), Piece("abc", 1100)), 300)


def test_every_piece_is_a_message_that_says_its_tokens() -> None:
    chat = json.loads(body(REQUEST, Speed(60)))
    contents = [message["content"] for message in chat["messages"]]
    assert [content.partition(":")[0] for content in contents] == ["512", "512", "76"]
    assert len(contents[0]) == len(contents[1]) == 32
    assert chat["max_tokens"] == 5


def test_what_two_prompts_share_is_the_same_text() -> None:
    other = Recorded(1.0, (*REQUEST.pieces[:2], Piece("abd", 1100)), 1)
    first, second = (json.loads(body(one, Speed()))["messages"] for one in (REQUEST, other))
    assert first[:2] == second[:2]
    assert first[2] != second[2]


def test_a_real_fleet_serves_it_and_the_second_turn_hits() -> None:
    longer = Recorded(0.6, (*REQUEST.pieces, Piece("abcd", 1612)), 10)
    unlike = Recorded(0.7, (Piece("z", 1000),), 10)
    wish = FleetWish(2, 100_000, Pace(1e6, 0.005), RoutingConfig(), num_gateways=2)
    with running(wish) as fleet:
        served = uvloop.run(replay([REQUEST, longer, unlike], fleet.ports, Speed(1.0)))
    assert [one.prompt_tokens for one in served] == [1100, 1612, 1000]
    assert [one.cached_tokens for one in served] == [0, 1100, 0]
    assert served[0].worker == served[1].worker


def test_requests_go_out_when_they_are_due() -> None:
    requests = [Recorded(100.0 + at, REQUEST.pieces, 1) for at in (0.0, 4.0, 8.0)]
    wish = FleetWish(1, 100_000, Pace(1e6, 0.005), RoutingConfig())
    with running(wish) as fleet:
        began = time.monotonic()
        served: list[Served] = uvloop.run(replay(requests, fleet.ports, Speed(10.0)))
        took = time.monotonic() - began
    assert took >= 0.8
    assert [one.at_s for one in served] == [100.0, 104.0, 108.0]
