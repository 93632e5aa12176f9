"""The comparison of dense and sparse attention over one growing text."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.long_context import FACTS, Reader, Room, haystack, stretched
from loadtest.workloads.dflash import DENSE, EIGHT, SPARSE, Point, Shape, advice, draw, report
from tests.worker.loaded import tokenizer_of
from worker.model.formats import Formats


def point(length: int, variant: str, step_s: float, recalled: int = 7) -> Point:
    kv_bytes = length * (300 if variant == EIGHT.name else 1000)
    return Point(length, variant, kv_bytes, step_s, step_s / 2, 4 / step_s, 0.01, recalled, 7)


POINTS = [
    *(point(length, DENSE.name, length / 1000) for length in (512, 1024)),
    *(point(length, SPARSE.name, 0.5, recalled=6) for length in (512, 1024)),
    *(point(length, EIGHT.name, 0.25) for length in (512, 1024)),
]


def test_the_last_line_is_of_the_longest_context() -> None:
    summary = report(POINTS, Shape(1024)).summary
    assert summary["speedup_1k"] == pytest.approx(1.024 / 0.5)
    assert summary["passkey"] == pytest.approx(6 / 7)
    assert summary["kv_ratio"] == pytest.approx(0.3)
    assert summary["passkey_8bit"] == 1


def test_the_advice_names_the_length_from_which_on_it_pays() -> None:
    assert "from 1024 tokens on" in advice(POINTS, Shape(1024))
    slow = [point(512, DENSE.name, 0.4), point(512, SPARSE.name, 0.39)]
    assert "at none of these lengths" in advice(slow, Shape(512))


def test_the_picture_is_written(tmp_path: Path) -> None:
    draw(POINTS, tmp_path / "dflash.svg")
    assert (tmp_path / "dflash.svg").read_text().count("dflash 8") == 1


def test_every_fact_is_told_within_the_text(smollm2_folder: Path) -> None:
    tokenizer = tokenizer_of(smollm2_folder)
    text = haystack(tokenizer, 3000)
    assert len(text.ids) == 3000
    for fact, answer in FACTS.items():
        assert f"{fact} {answer}" in tokenizer.decode(text.ids[: text.told[fact]])


def test_a_full_budget_reads_like_dense_and_a_small_one_does_not(smollm2_folder: Path) -> None:
    text = haystack(tokenizer_of(smollm2_folder), 320).ids
    with stretched(smollm2_folder, 9000) as folder:
        reader = Reader(folder, Room(320, copies=1), Formats(sketched_keys=True))
        reader.extend(text[:310])
        dense = reader.logprobs(text[310:], 0)
        assert (reader.logprobs(text[310:], 1024) == dense).all()
        gap = (reader.logprobs(text[310:], 96) - dense).abs().max()
        assert gap > 0.001
        reader.spread()
        step = reader.step(96, 2)
        assert 0 < step.attention_s < step.whole_s
        assert reader.kv_bytes(sketched=False) == 310 * 46_080
