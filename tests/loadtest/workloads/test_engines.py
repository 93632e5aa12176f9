from __future__ import annotations

import sys

import pytest

from loadtest.errors import LoadTestError, RequestRefused
from loadtest.peers.servers import Wish
from loadtest.report import summary_line
from loadtest.streams import Stream
from loadtest.workloads import fan_out
from loadtest.workloads.engines import (
    Decoded,
    Outcome,
    Shape,
    best,
    decoded,
    measure_all,
    missing,
    prompts,
    report,
)

SHAPE = Shape((1, 4), prompt_tokens=6, new_tokens=3)


def outcome(one: float, many: float, wall_s: float, answer: str = "a") -> Outcome:
    made = {1: Decoded(one, (answer,)), 4: Decoded(many, ("b",) * 4)}
    return Outcome(made, fan_out.Outcome(wall_s, 1.0, 64, None, ("c", "d")))


def test_no_two_prompts_of_any_batch_begin_alike() -> None:
    found = [prompt for batch in SHAPE.batches for prompt in prompts(SHAPE, batch)]
    assert [len(prompt) for prompt in found] == [6] * 5
    assert len({prompt[0] for prompt in found}) == 5
    assert found == [prompt for batch in SHAPE.batches for prompt in prompts(SHAPE, batch)]


def test_the_ratio_is_that_of_the_batch_where_we_are_least_ahead() -> None:
    found = report(
        {
            "pando": outcome(30, 200, 5.0),
            "transformers": outcome(10, 100, 20.0),
            "llama_cpp": outcome(40, 50, 10.0, "other"),
        }
    )
    assert summary_line(found) == (
        "engines: over_transformers=2 over_llama_cpp=0.75 over_transformers_1=3 "
        "over_transformers_4=2 over_llama_cpp_1=0.75 over_llama_cpp_4=4 tokens_per_s_1=30 "
        "tokens_per_s_4=200 shared_over_best_peer=0.5 mismatches=0"
    )
    assert all(len(row) == len(found.columns) for row in found.rows)
    assert [row[-1] for row in found.rows] == ["7/7", "7/7", "6/7"]


def test_answers_that_differ_from_transformers_are_counted() -> None:
    found = report({"pando": outcome(1, 1, 1, "x"), "transformers": outcome(1, 1, 1)})
    assert found.summary["mismatches"] == 1


def test_of_several_rounds_each_figure_is_the_best_one() -> None:
    found = best([outcome(10, 100, 5.0), outcome(20, 90, 4.0)])
    assert (found.decoded[1].tokens_per_s, found.decoded[4].tokens_per_s) == (20, 100)
    assert found.shared.wall_s == 4.0


def test_an_engine_that_stops_early_has_no_figure() -> None:
    whole, short = Stream((1.0, 2.0, 3.0), "", 3), Stream((1.0, 2.0), "", 2)
    assert decoded([whole, whole], SHAPE).tokens_per_s == 2.0
    with pytest.raises(RequestRefused, match="2 tokens instead of 3"):
        decoded([whole, short], SHAPE)


def test_what_is_not_installed_is_left_out_by_name() -> None:
    assert missing("transformers", sys.executable) is None
    why = missing("llama_cpp", "/nowhere/python")
    assert why is not None
    assert why.startswith("llama_cpp is left out: /nowhere/python has no xllamacpp")
    assert "--llama-python" in why


def test_an_unknown_engine_is_refused_before_any_starts() -> None:
    with pytest.raises(LoadTestError, match="engines are pando, torch"):
        measure_all({"pando": Wish("m", 1), "torch": Wish("m", 1)}, SHAPE, 1, print)
