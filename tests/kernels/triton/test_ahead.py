"""Every kernel compiles for GPUs that are not here, and fits. In processes of their own: Triton
either interprets or compiles.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def ahead(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(folder)
    command = [sys.executable, "-m", "kernels.triton.ahead", *flags]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_a_typical_model_compiles_for_hopper(tmp_path: Path) -> None:
    done = ahead(
        tmp_path,
        *["--targets", "90", "--dtypes", "bfloat16", "--dims", "128", "--groups", "4", "--brief"],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"ahead: kernels=\d+ targets=1 failed=0", last)
    for kernel in (
        "write",
        "sketch",
        "copy",
        "prefill",
        "narrow",
        "wide",
        "chosen",
        "merge",
        "worth",
    ):
        assert re.search(rf"^sm_90 {kernel} .* shared=\d+ registers=[1-9]\d* ", done.stdout, re.M)


def test_what_does_not_fit_fails(tmp_path: Path) -> None:
    flags = ("--targets=90", "--dtypes=float16", "--dims=64", "--groups=1", "--limit=1000")
    done = ahead(tmp_path, "--brief", *flags)
    assert done.returncode == 1
    assert "DOES NOT FIT" in done.stdout
    assert not done.stdout.endswith("failed=0\n")


@pytest.mark.slow
def test_all_of_it_compiles(tmp_path: Path) -> None:
    done = ahead(tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert done.stdout.endswith("targets=2 failed=0\n")
