"""The lowered member equals transformers' modules, and keeps its bits whatever the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from kernels.cpu import build
from tests.kernels.paging import Part, batch_of, same_bits
from tests.worker.model.tiny import (
    CHUNKED,
    LLAMA_SHAPED,
    ONE_BY_ONE,
    OTHERS,
    WHOLE,
    Step,
    eager_logits,
    paged_logits,
    save_tiny,
)
from worker.model.errors import UnsupportedModel
from worker.model.loading import LoadOptions, load


def tiny(name: str, folder: Path) -> Any:
    return save_tiny(LLAMA_SHAPED[name](), folder)


def lowered(folder: Path, **options: Any) -> Any:
    return load(folder, LoadOptions(**{"num_pages": 40, "member": "lowered", **options}))


def assert_close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for left, right in zip(found, expected, strict=True):
        assert (left - right).abs().max() < 1e-4


@pytest.mark.parametrize("name", LLAMA_SHAPED)
def test_it_equals_plain_transformers_and_the_other_member(name: str, tmp_path: Path) -> None:
    expected = eager_logits(tiny(name, tmp_path))
    found = paged_logits(lowered(tmp_path), CHUNKED)
    assert_close(found, expected)
    other = load(tmp_path, LoadOptions(num_pages=40, member="modules"))
    assert_close(found, paged_logits(other, WHOLE))


@pytest.mark.parametrize("name", LLAMA_SHAPED)
def test_auto_chooses_it_by_shape(name: str, tmp_path: Path) -> None:
    tiny(name, tmp_path)
    assert load(tmp_path, LoadOptions(num_pages=4)).name == "lowered"


@pytest.mark.parametrize("name", ["qwen3", "mistral"])
@pytest.mark.parametrize("schedule", [CHUNKED, ONE_BY_ONE], ids=["chunked", "one_by_one"])
@pytest.mark.parametrize(
    "options", [{}, {"page_size": 1, "num_pages": 150}, {"page_size": 64}, {"threads": 2}]
)
def test_logits_have_the_same_bits_whatever_the_batch(
    name: str, schedule: list[Step], options: dict[str, int], tmp_path: Path
) -> None:
    tiny(name, tmp_path)
    model = lowered(tmp_path)
    assert model.bitwise
    expected = paged_logits(model, WHOLE)
    found = paged_logits(lowered(tmp_path, **options), schedule, seed=5)
    for left, right in zip(found, expected, strict=True):
        assert same_bits(left, right)


def test_float64_agrees_to_the_last_digits_on_the_reference(tmp_path: Path) -> None:
    modules = tiny("qwen3", tmp_path).double()
    model = lowered(tmp_path, dtype=torch.float64, backend="reference")
    for found, right in zip(paged_logits(model, CHUNKED), eager_logits(modules), strict=True):
        torch.testing.assert_close(found, right.float(), atol=1e-6, rtol=1e-6)


def test_only_the_requested_rows_come_back_in_their_order(tmp_path: Path) -> None:
    tiny("llama", tmp_path)
    model = lowered(tmp_path)
    ids, positions = torch.arange(5, 25), torch.arange(20)
    batch = batch_of([Part([0, 1], 0, 20)], 16)
    everything = model.forward(ids, positions, batch, torch.arange(20))
    rows = torch.tensor([19, 3])
    assert same_bits(model.forward(ids, positions, batch, rows), everything[rows])
    nothing = model.forward(ids, positions, batch, torch.tensor([], dtype=torch.int64))
    assert nothing.shape == (0, 199)


def test_it_runs_on_torch_where_no_compiler_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = eager_logits(tiny("qwen2", tmp_path))

    def refuse(*_: object) -> None:
        raise build.BuildError("no compiler today")

    for room in ("attention", "elementwise"):
        monkeypatch.setattr(f"kernels.cpu.{room}.load_library", refuse)
    model = lowered(tmp_path)
    assert not model.bitwise
    assert_close(paged_logits(model, CHUNKED), expected)


def test_weights_in_bfloat16_and_in_shards_load(tmp_path: Path) -> None:
    modules = tiny("llama", tmp_path / "whole").bfloat16()
    modules.save_pretrained(tmp_path / "shards", max_shard_size="50KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").is_file()
    wide = AutoModelForCausalLM.from_pretrained(
        tmp_path / "shards", dtype=torch.float32, attn_implementation="eager"
    )
    assert_close(paged_logits(lowered(tmp_path / "shards"), WHOLE), eager_logits(wide))


def test_what_is_not_of_the_shape_cannot_be_forced(tmp_path: Path) -> None:
    save_tiny(OTHERS["granite"](), tmp_path)
    with pytest.raises(UnsupportedModel, match="'granite' is not of the Llama shape"):
        lowered(tmp_path)
