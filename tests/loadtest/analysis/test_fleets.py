"""What is simulated of a log is what real gateways do with it."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from loadtest.analysis.findings import FleetPoint
from loadtest.analysis.fleets import FleetWish, hit_rate, recorded, routing_of, simulated
from loadtest.analysis.study import Study, Wish
from loadtest.analysis.survey import Limits, Survey
from loadtest.analysis.writing import BytePen
from loadtest.fake.engine import Pace
from loadtest.replay import Served, Speed, replay
from loadtest.replay_fleet import FleetWish as Processes
from loadtest.replay_fleet import running
from loadtest.traces import Recorded, mooncake
from pando.up import ROOT
from tests.loadtest.analysis.logs import SYSTEM, written

PACE = Pace(8000, 0.02)
TRACE = ROOT / "loadtest" / "data" / "mooncake_conversation_trace.jsonl.gz"
# As the replay's clients write prompts: a byte stands for so many tokens.
TOKENS_PER_BYTE = 8.0


def surveyed(path: Path) -> Survey:
    return Study(b"key", lambda _: None).surveyed(Wish(path, BytePen()))


def conversations(count: int = 24, turns: int = 5) -> list[dict[str, Any]]:
    """A log of chats that grow by 4,000 bytes a turn, at the times at which they are asked."""
    rng, lines = random.Random(3), list[dict[str, Any]]()
    for number in range(count):
        at, messages = rng.uniform(0, 40), [{"role": "system", "content": SYSTEM}]
        for turn in range(turns):
            text = f"{number} {turn} {rng.random()} " * 180
            messages = [*messages, {"role": "user", "content": text[:4000]}]
            lines.append({"timestamp": round(at, 3), "messages": messages})
            at += rng.uniform(15, 40)
    return sorted(lines, key=lambda line: line["timestamp"])


def replayed(requests: Sequence[Recorded], wish: FleetWish, times: float) -> list[Served]:
    """The same requests through a real gateway before fake workers, faster."""
    policy = routing_of(wish.policies[0])
    routing = msgspec.structs.replace(
        policy,
        tokens_per_byte=TOKENS_PER_BYTE,
        warm_up_s=policy.warm_up_s / times,
        work_half_life_s=policy.work_half_life_s / times,
    )
    pace = Pace(wish.pace.prefill_tokens_s * times, wish.pace.tick_s)
    with running(Processes(wish.workers[0], wish.cache_tokens, pace, routing)) as fleet:
        return uvloop.run(replay(requests, fleet.ports, Speed(times)))


def point(survey: Survey, wish: FleetWish) -> FleetPoint:
    (found,) = simulated(survey, wish).points
    return found


def test_chats_are_replayed_message_by_message(tmp_path: Path) -> None:
    survey = surveyed(written(tmp_path, conversations(2, 3)))
    requests = recorded(survey, PACE)
    assert sorted(len(one.pieces) for one in requests) == [2, 2, 3, 3, 4, 4]
    assert len({one.pieces[0].key for one in requests}) == 1
    assert len({one.pieces[-1].key for one in requests}) == 6
    assert requests[0].at_s == 0


def test_blocks_are_replayed_as_the_traces_own_reader_has_them() -> None:
    survey = Study(b"key", lambda _: None).surveyed(Wish(TRACE, BytePen(), Limits(500)))
    ours = recorded(survey, PACE)
    theirs = mooncake(TRACE, 500)
    assert [one.prompt_tokens for one in ours] == [one.prompt_tokens for one in theirs]
    assert [one.output_tokens for one in ours] == [one.output_tokens for one in theirs]


@pytest.mark.parametrize("policy", ["cost", pytest.param("round_robin", marks=pytest.mark.slow)])
def test_real_gateways_have_the_hits_that_were_simulated(tmp_path: Path, policy: str) -> None:
    """Caches that hold what is in use: the outcome hangs on the rule, not on a moment."""
    survey = surveyed(written(tmp_path, conversations()))
    wish = FleetWish((3,), (policy,), 60_000, PACE)
    served = replayed(recorded(survey, PACE), wish, times=50)
    assert len(served) == 120
    assert hit_rate(served) == pytest.approx(point(survey, wish).hits, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [4, 8])
def test_real_gateways_have_the_hits_that_were_simulated_of_a_trace(
    tmp_path: Path, workers: int
) -> None:
    with gzip.open(TRACE, "rt") as file:
        survey = surveyed(written(tmp_path, [line.strip() for line in islice(file, 4000)]))
    wish = FleetWish((workers,), ("cost",), 3000 * 512, PACE)
    served = replayed(recorded(survey, PACE), wish, times=40)
    assert hit_rate(served) == pytest.approx(point(survey, wish).hits, abs=0.02)
