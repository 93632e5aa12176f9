"""The check runs whole where there is no GPU, and what breaks in one part stays there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels import Place
from kernels.interface import AttentionBackend, AttentionBatch, AttentionParams, KVShape
from kernels.reference import ReferenceAttention
from loadtest.gpu_check.agreement import compare
from loadtest.gpu_check.findings import Part, Row, lines, parsed, part_of, with_shares, written
from loadtest.gpu_check.parts import Plan, names, run_all, run_apart, run_here
from loadtest.gpu_check.scale import CPU_MEMBERS, REHEARSAL

ROOT = Path(__file__).resolve().parents[3]


def checked(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadtest.gpu_check", *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_rehearsal_runs_every_part_to_its_end(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    done = checked("--rehearse", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(out.read_text())
    assert told["rehearsal"] is True
    status = {part["name"]: part["status"] for part in told["parts"]}
    assert list(status) == names(REHEARSAL)
    assert set(status.values()) <= {"ok", "left out"}
    gather = {name for name in status if name.endswith(":gather")}
    assert len(gather) == 3
    assert {status[name] for name in gather | {"machine"}} == {"ok"}
    figures = {key for part in told["parts"] for row in part["rows"] for key in row["figures"]}
    assert {"largest_error", "gb_s_share", "tflop_s_share", "graphs_tokens_s"} <= figures
    assert done.stdout.splitlines()[-1].startswith("gpu-check: ok=")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_ends_with_2() -> None:
    done = checked()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpu_check: this torch finds no CUDA device here; --rehearse")
    assert done.stderr.count("\n") == 1


def ticking() -> Iterator[float]:
    yield 0.0  # the start
    yield 1.0
    yield from [1000.0] * 100


def test_what_no_time_is_left_for_is_left_out_by_name() -> None:
    clock = ticking()
    found = list(run_all(Plan(rehearse=True, limit_s=60), lambda: next(clock)))
    assert [part.name for part in found] == names(REHEARSAL)
    assert [part.status for part in found] == ["ok"] + ["left out"] * 3 * len(CPU_MEMBERS)
    assert found[1].reason == "no time left of 60 s"


def test_an_error_is_a_parts_result() -> None:
    part = run_here("agreement:nothing", Plan(rehearse=True, limit_s=60))
    assert part.status == "left out"
    assert "'nothing' is none of" in part.reason
    assert run_here("nowhere", Plan(rehearse=True, limit_s=60)).status == "left out"


def test_a_part_whose_process_dies_or_hangs_has_failed() -> None:
    plan = Plan(rehearse=True, limit_s=60, python="false")
    assert run_apart("machine", plan, 60).reason.startswith("exit status 1")
    slow = run_apart("machine", replace(plan, python=sys.executable), 0.01)
    assert (slow.status, slow.reason) == ("failed", "not done after 0 s")


def test_a_part_in_a_process_of_its_own_gives_the_same() -> None:
    part = run_apart("machine", Plan(rehearse=True, limit_s=60), 300)
    assert part.status == "ok", part.reason
    assert part.rows[0].figures["torch"] == torch.__version__


class Dense(ReferenceAttention):
    """Reads all, whatever the budget."""

    def attend(
        self, layer: int, query: torch.Tensor, batch: AttentionBatch, params: AttentionParams
    ) -> torch.Tensor:
        return super().attend(layer, query, replace(batch, budget=None), params)


def test_a_member_that_is_wrong_in_one_case_is_caught_in_that_case() -> None:
    def make(name: str, shape: KVShape, place: Place) -> AttentionBackend:
        assert (name, place.device) == ("dense", "cpu")
        if shape.eight_bit:
            raise ValueError("no eight bits")
        return Dense(shape)

    found = {row.what: row for row in compare(REHEARSAL, "dense", make)}
    assert found["dense, dflash"].wrong
    assert found["dense, eight bits"].figures == {"refused": "no eight bits"}
    others = found.keys() - {"dense, dflash"}
    assert len(others) == 4
    assert not any(found[what].wrong for what in others)


def test_rates_are_told_as_shares_of_what_the_machine_does() -> None:
    part = part_of("speed", [Row("a", {"gb_s": 50.0, "us": 3.0}), Row("b", {"tflop_s": 1.0})], 1.0)
    machine: dict[str, Any] = {"copy_gb_s": 200.0, "gemm_tflop_s": 4.0, "device": "x"}
    found = with_shares(part, machine)
    assert found.rows[0].figures == {"gb_s": 50.0, "us": 3.0, "gb_s_share": 0.25}
    assert found.rows[1].figures["tflop_s_share"] == 0.25
    assert with_shares(part, {}).rows == list(part.rows)


def test_a_row_that_is_wrong_makes_its_part_so_and_is_marked() -> None:
    part = part_of("agreement", [Row("a", {"error": 1.0}, wrong=True), Row("b", {})], 2.0)
    assert part.status == "wrong"
    assert [line.startswith("  ! ") for line in lines(part)] == [False, True, False]


def test_parts_come_through_a_pipe_unchanged() -> None:
    part = Part("p", "failed", 1.5, (Row("a", {"n": 1, "x": 0.5, "s": "t", "b": True}),), "why")
    assert parsed(written(part)) == part
