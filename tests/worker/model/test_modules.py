"""Every supported family computes on pages what transformers' own attention computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worker.model.tiny import (
    CHUNKED,
    LLAMA_SHAPED,
    OTHERS,
    eager_logits,
    paged_logits,
    save_tiny,
)
from worker.model.errors import UnsupportedModel
from worker.model.families import SUPPORTED
from worker.model.loading import LoadOptions, load
from worker.model.modules import ModulesModel, PagedStep, paged_attention

FAMILIES = {**LLAMA_SHAPED, **OTHERS}


def test_every_supported_type_is_tested() -> None:
    assert {make().model_type for make in FAMILIES.values()} == SUPPORTED


@pytest.mark.parametrize("family", FAMILIES)
def test_pages_agree_with_eager_attention(family: str, tmp_path: Path) -> None:
    modules = save_tiny(FAMILIES[family](), tmp_path)
    expected = eager_logits(modules)
    model = load(tmp_path, LoadOptions(num_pages=40, member="modules"))
    for found, right in zip(paged_logits(model, CHUNKED), expected, strict=True):
        assert (found - right).abs().max() < 1e-4


def test_auto_takes_the_modules_where_the_shape_does_not_fit(tmp_path: Path) -> None:
    save_tiny(OTHERS["gpt2"](), tmp_path)
    assert load(tmp_path, LoadOptions(num_pages=4)).name == "modules"


def test_float64_agrees_to_the_last_digits_on_the_reference(tmp_path: Path) -> None:
    modules = save_tiny(OTHERS["gemma2"](), tmp_path).double()
    options = LoadOptions(num_pages=40, member="modules", backend="reference", dtype=torch.float64)
    model = load(tmp_path, options)
    for found, right in zip(paged_logits(model, CHUNKED), eager_logits(modules), strict=True):
        torch.testing.assert_close(found, right.float(), atol=1e-6, rtol=1e-6)


class _Module:
    layer_idx = 0


def test_an_unknown_argument_of_attention_is_refused() -> None:
    anything: Any = None
    x = torch.zeros(1, 1, 1, 8)
    with pytest.raises(UnsupportedModel, match=r"_Module asks attention .* s_aux"):
        paged_attention(_Module(), x, x, x, None, pando_step=PagedStep(anything, anything), s_aux=x)


def test_the_start_up_check_refuses_a_model_that_attends_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = save_tiny(LLAMA_SHAPED["llama"](), tmp_path)
    model = load(tmp_path, LoadOptions(num_pages=4, member="modules"))
    assert isinstance(model, ModulesModel)
    for layer in modules.model.layers:
        # A scale that only paged attention sees.
        attention = layer.self_attn
        forward = attention.forward

        def biased(*args: Any, _forward: Any = forward, **kwargs: Any) -> Any:
            if "pando_step" in kwargs:
                kwargs["sliding_window"] = 1
            return _forward(*args, **kwargs)

        attention.forward = biased
    with pytest.raises(UnsupportedModel, match="differs from its own attention"):
        ModulesModel(modules, model.shape, model.backend, model._place)
