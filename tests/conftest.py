"""Fixtures that several packages' tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from worker.model.files import DEFAULT_MODEL, default_cache_folder, resolve

# Triton reads this when it is first imported, which transformers may do before our own kernels:
# where no GPU is, kernels run in Triton's interpreter.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Time says nothing of a property on a machine whose cores are shared. In CI every run tries the
# same examples; elsewhere each run tries new ones.
settings.register_profile(
    "pando",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
# For planted faults: the first failure is enough, and every run tries the same.
settings.register_profile(
    "planted",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("pando")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several processes, a file's tests stay together, and those that share a fleet do."""
    for item in items:
        folder = item.path.parent.name
        group = folder if folder == "end_to_end" else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The default model's folder. The first run on a machine converts it (half a minute)."""
    return resolve(DEFAULT_MODEL, default_cache_folder())
