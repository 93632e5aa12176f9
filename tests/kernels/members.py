"""The members of `kernels` that the suites of all members try."""

from __future__ import annotations

from importlib.util import find_spec

import torch

MEMBERS = ["reference", "gather", "cpu"]

# With `triton`, for tests that take few steps: it runs in an interpreter here. On a GPU its own
# suite, tests/kernels/triton, runs on that GPU.
INTERPRETED = find_spec("triton") is not None and not torch.cuda.is_available()
WITH_TRITON = [*MEMBERS, "triton"] if INTERPRETED else MEMBERS
