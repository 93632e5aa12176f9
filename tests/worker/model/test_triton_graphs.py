"""Captured decode steps over the Triton kernels, interpreted here, give what the model gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.interface import Holding
from tests.kernels.members import INTERPRETED
from tests.worker.model.test_graphs import PAGES, SCRATCH, Again, Lives
from tests.worker.model.tiny import GROUPED, save_tiny
from worker.model.graphs import GraphedModel, GraphRoom
from worker.model.loading import LoadOptions, load

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="Triton's interpreter is not at hand")
ROOM = GraphRoom((2, 4), SCRATCH, max_pages=6, device=torch.device("cpu"))


def lives(folder: Path, member: str, graphs: bool) -> Lives:
    options = LoadOptions(num_pages=PAGES + 1, member="lowered", backend=member)
    model: Any = load(folder, options)
    assert isinstance(model.backend, Holding) == (member == "triton")
    if graphs:
        model = GraphedModel(model, ROOM, Again())
    generator = torch.Generator().manual_seed(1)
    tables = [[0, 1, 2, 3], [0, 1, 4, 5], [0, 1, 6, 7]]  # they begin alike
    ids = torch.randint(90, (3, 50), generator=generator)
    ids[:, :32] = ids[0, :32]
    return Lives(model, tables, ids.tolist())


def test_steps_of_rows_that_share_pages_give_the_logits_of_the_reference(tmp_path: Path) -> None:
    import transformers

    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    config = transformers.Qwen2Config(
        **GROUPED, use_sliding_window=True, sliding_window=24, layer_types=kinds
    )
    save_tiny(config, tmp_path)
    graphed, plain = lives(tmp_path, "triton", True), lives(tmp_path, "reference", False)
    for both in (graphed, plain):
        both.step({0: 33})
        both.done[1:] = [32, 32]
        both.step({1: 2, 2: 1})
    for counts in ({0: 1, 1: 1, 2: 1}, {0: 1, 2: 1}, {1: 1}, {0: 1, 1: 1, 2: 1}):
        torch.testing.assert_close(graphed.step(counts), plain.step(counts), atol=1e-4, rtol=1e-4)
