"""Memory that nobody has written holds NaN here: outputs and partials as well as pages."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

if find_spec("triton") is None:  # as on a Mac
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)  # torch.empty is filled with NaN then
    yield
    torch.use_deterministic_algorithms(False)
