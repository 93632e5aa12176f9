"""The simulated fleet routes with the gateway's own router, and ends every request."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from gateway.config import RoutingConfig
from gateway.tenant_config import PolicyConfig
from loadtest.replay import Served
from loadtest.simulation import Setting, Simulation, pooled_hits
from loadtest.traces import Piece, Recorded

FLEET = Setting(num_workers=4, cache_tokens=200_000)


def conversations(count: int = 60, turns: int = 6) -> list[Recorded]:
    """Conversations that grow by 1,000 tokens a turn, a turn every 40 s or so."""
    rng = random.Random(1)
    made = []
    for number in range(count):
        at, pieces = rng.uniform(0, 60), [Piece("system", 500)]
        for one in range(turns):
            pieces.append(Piece(f"c{number}t{one}", 1000 * (one + 1) + 500))
            made.append(Recorded(at, tuple(pieces), 50))
            at += rng.uniform(20, 60)
    return sorted(made, key=lambda request: request.at_s)


def hits(served: Sequence[Served]) -> float:
    return sum(one.cached_tokens for one in served) / sum(one.prompt_tokens for one in served)


def simulated(setting: Setting) -> list[Served]:
    return Simulation(setting).run(conversations())


@pytest.mark.parametrize("gateways", [1, 4])
def test_conversations_come_near_one_big_cache_however_many_gateways(gateways: int) -> None:
    served = simulated(Setting(4, 200_000, num_gateways=gateways))
    assert len(served) == 360
    assert hits(served) >= 0.97 * pooled_hits(conversations(), 4 * 200_000)
    counts = Counter(one.worker for one in served)
    assert len(counts) == 4


def test_round_robin_does_not() -> None:
    policy = RoutingConfig(policy=PolicyConfig("round_robin"))
    served = simulated(Setting(4, 200_000, policy))
    assert hits(served) < 0.6 * pooled_hits(conversations(), 4 * 200_000)


def test_a_run_can_be_repeated() -> None:
    assert simulated(FLEET) == simulated(FLEET)


def test_a_worker_that_comes_gets_its_part_and_nobody_loses_much() -> None:
    served = simulated(Setting(4, 200_000, joins_at_s=20.0))
    late = [one for one in served if one.at_s > 20]
    share = sum(one.worker == "w4" for one in late) / len(late)
    assert 0 < share <= 0.25
    assert hits(served) >= hits(simulated(FLEET)) - 0.03


def test_a_cache_that_holds_everything_misses_each_piece_once() -> None:
    requests = conversations(count=5)
    fresh = {piece.key: piece for request in requests for piece in request.pieces}
    computed = 500 + 1000 * (len(fresh) - 1)
    total = sum(request.prompt_tokens for request in requests)
    assert pooled_hits(requests, 10**9) == pytest.approx(1 - computed / total)
