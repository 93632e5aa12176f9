"""What of a model each rank holds, and which models and numbers of ranks are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import transformers as t

from tests.worker.model.tiny import BASE, GROUPED, LLAMA_SHAPED, OTHERS
from worker.model.errors import UnsupportedModel
from worker.model.split import distribution, kv_heads_of_rank

FAMILIES: dict[str, Callable[[], Any]] = {**LLAMA_SHAPED, **OTHERS}
WITHOUT_PLAN = {"gpt2", "opt"}
GATHERED = {"olmo2", "phi3"}


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - WITHOUT_PLAN))
def test_each_rank_holds_its_part_of_the_kv_heads_where_the_plan_splits_them(family: str) -> None:
    config = FAMILIES[family]()
    whole = kv_heads_of_rank(config, 1)
    assert kv_heads_of_rank(config, 2) == (whole if family in GATHERED else whole // 2)


@pytest.mark.parametrize("family", sorted(WITHOUT_PLAN))
def test_a_model_without_a_plan_is_refused_by_its_type(family: str) -> None:
    config = FAMILIES[family]()
    with pytest.raises(UnsupportedModel, match=f"no plan .* '{family}'"):
        kv_heads_of_rank(config, 2)
    assert kv_heads_of_rank(config, 1) == 4


@pytest.mark.parametrize(
    ("config", "ranks", "says"),
    [
        (t.LlamaConfig(**GROUPED), 3, "4 attention heads"),
        (t.LlamaConfig(**GROUPED), 4, "2 K/V heads"),
        (t.GPTNeoXConfig(**BASE), 3, "4 attention heads"),
    ],
    ids=["heads", "kv-heads", "fused"],
)
def test_heads_that_the_ranks_do_not_divide_are_refused(config: Any, ranks: int, says: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"tensor_parallel is {ranks}: .* {says}"):
        kv_heads_of_rank(config, ranks)


def test_one_rank_is_loaded_as_ever() -> None:
    assert distribution(1) is None
