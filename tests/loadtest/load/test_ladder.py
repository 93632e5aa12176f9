"""What the ladder sends to which rung, and its last line; the fleets are tried by `slow`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from loadtest.load import ladder
from loadtest.load.ladder import Rung, Shape
from loadtest.report import summary_line
from tests.loadtest.load.server import words_of
from worker.config import WorkerConfig

RUNGS = [
    Rung(ladder.OFF, 0.0, 20.0, 1000.0, 4 << 20, 100 << 20),
    Rung(ladder.RADIX, 0.4, 30.0, 1500.0, 3 << 20, 90 << 20),
    Rung(ladder.DFLASH, 0.39, 33.0, 1600.0, 1 << 20, 80 << 20),
    Rung(ladder.REGROUPED, 0.6, 45.0, 1900.0, 1 << 20, 80 << 20),
]


def test_groups_share_their_system_prompt_and_clients_mix_them() -> None:
    shape = Shape(groups=5, members=4, prefix_tokens=30, own_tokens=7)
    found = [words_of(dict(one[0].body)) for one in ladder.chats(shape)]
    assert set(Counter(tuple(one[:31]) for one in found).values()) == {4}
    assert {len(one) for one in found} == {30 + 7 + 2}
    order = [one[0].conversation for one in ladder.chats(shape)]
    assert order != sorted(order)
    assert ladder.chats(shape) == ladder.chats(shape)


def test_the_pool_holds_what_runs_and_not_all_groups() -> None:
    shape = Shape()
    each = shape.prefix_tokens + shape.own_tokens + shape.output_tokens
    assert shape.pool_tokens >= shape.running * each
    assert shape.pool_tokens < shape.groups * shape.prefix_tokens
    assert shape.prefix_tokens >= 2048
    assert shape.prefix_tokens > shape.dflash_budget


def test_rungs_differ_in_one_thing_each() -> None:
    off, radix, sparse, regrouped = ladder.stands("m", Shape()).values()
    assert (off.cache, radix.cache) == ("off", "radix")
    assert (off.flags, off.settings, off.kv_memory) == (
        radix.flags,
        radix.settings,
        radix.kv_memory,
    )
    assert set(sparse.flags) - set(radix.flags) == {
        *("--dflash", "on", "--kv-cache-dtype", "int8", "--dflash-budget", "512")
    }
    assert (sparse.settings, sparse.kv_memory) == (radix.settings, radix.kv_memory)
    assert (regrouped.flags, regrouped.kv_memory) == (sparse.flags, sparse.kv_memory)
    assert regrouped.settings != sparse.settings


def test_a_pool_is_named_in_tokens_that_a_worker_takes() -> None:
    stand = ladder.stands("m", Shape())[ladder.RADIX]
    config = WorkerConfig(model="m", kv_memory=stand.kv_memory)
    assert config.kv_memory_bytes(10, 0) == Shape().pool_tokens * 10


def test_the_ladders_last_line_has_its_ratios(tmp_path: Path) -> None:
    assert summary_line(ladder.report(RUNGS)) == (
        "ladder: radix_over_off=1.5 dflash_memory_ratio=0.3333 regrouped_over_radix=1.5 "
        "radix_hit=0.4 dflash_hit=0.39 regrouped_hit=0.6"
    )
    assert [row[0] for row in ladder.report(RUNGS).rows] == [rung.name for rung in RUNGS]
    ladder.draw(RUNGS, tmp_path / "ladder.svg")
    assert "<svg" in (tmp_path / "ladder.svg").read_text()


@pytest.mark.slow
def test_a_small_ladder_stands_on_the_real_model() -> None:
    rungs = ladder.measure("smollm2-135m-instruct", ladder.QUICK, print)
    found = {rung.name: rung for rung in rungs}
    assert found[ladder.OFF].hit_rate == 0
    assert 0 < found[ladder.RADIX].hit_rate < found[ladder.REGROUPED].hit_rate
    assert 0 < found[ladder.DFLASH].kv_bytes < 0.6 * found[ladder.RADIX].kv_bytes
