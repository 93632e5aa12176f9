"""Fixtures that several packages' tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.model.files import DEFAULT_MODEL, default_cache_folder, resolve


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The default model's folder. The first run on a machine converts it (half a minute)."""
    return resolve(DEFAULT_MODEL, default_cache_folder())
