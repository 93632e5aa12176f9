"""Building at first use, caching, and falling back where no compiler is."""

from __future__ import annotations

import logging
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels import Place, make_backend, make_ops
from kernels.cpu.build import BuildError, load_library
from kernels.interface import AttentionParams, KVShape
from tests.kernels.attending import Contents, mixed, run_schedule
from tests.kernels.paging import random_tables

SHAPE = KVShape(1, 2, 16, 1, 16, torch.float32)


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PANDO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


@pytest.mark.usefixtures("empty_cache")
def test_without_a_compiler_torch_takes_over_with_one_log_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with caplog.at_level(logging.WARNING):
        backend = make_backend("cpu", SHAPE, Place())
    assert (backend.name, backend.bitwise) == ("gather", False)
    assert [record.getMessage() for record in caplog.records] == [
        "attention falls back to torch: no C compiler found (looked for $CC, cc, gcc, clang)"
    ]
    ops = make_ops(Place(), torch.float32)
    assert (ops.name, ops.bitwise) == ("torch", False)


@pytest.mark.usefixtures("empty_cache")
def test_a_compiler_that_fails_is_not_fatal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken-cc"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\necho no room >&2\nexit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(BuildError, match="refused the source: no room"):
        load_library("elementwise.c")
    assert make_backend("cpu", SHAPE, Place()).name == "gather"


@pytest.mark.usefixtures("empty_cache")
def test_a_cache_folder_that_cannot_be_written_is_not_fatal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PANDO_CACHE", str(tmp_path / "file" / "below"))
    assert make_backend("cpu", SHAPE, Place()).name == "gather"


def test_a_second_load_does_not_build_again(empty_cache: Path) -> None:
    load_library("elementwise.c")
    (library,) = empty_cache.iterdir()
    built_at = library.stat().st_mtime_ns
    load_library("elementwise.c")
    assert [path.stat().st_mtime_ns for path in empty_cache.iterdir()] == [built_at]


@pytest.fixture
def counting_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A compiler that can't be started the first time; a line in `runs` each time it is."""
    compiler = tmp_path / "counting-cc"
    real = shutil.which("cc")
    compiler.write_text(f'#!/bin/sh\necho >> {tmp_path}/runs\nexec {real} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    failed: list[bool] = []
    real_run = subprocess.run

    def run(*arguments: Any, **options: Any) -> Any:
        if not failed:
            failed.append(True)
            raise OSError(22, "Invalid argument")
        return real_run(*arguments, **options)

    monkeypatch.setattr(subprocess, "run", run)
    return tmp_path / "runs"


@pytest.mark.usefixtures("empty_cache")
def test_a_compiler_that_could_not_be_started_is_tried_again(counting_compiler: Path) -> None:
    load_library("elementwise.c")
    assert len(counting_compiler.read_text().splitlines()) == 1


@pytest.mark.usefixtures("empty_cache")
def test_a_library_that_is_there_is_loaded_without_the_compiler(counting_compiler: Path) -> None:
    """Else one that can't be run for a moment gives a worker other bits than its fleet has."""
    load_library("elementwise.c")
    load_library("elementwise.c")
    assert len(counting_compiler.read_text().splitlines()) == 1


def test_macros_name_libraries_of_their_own(empty_cache: Path) -> None:
    small = load_library("attention.c", {"HEAD_DIM": 8})
    large = load_library("attention.c", {"HEAD_DIM": 40})
    assert (small.value_width(), large.value_width()) == (16, 48)
    assert len(list(empty_cache.iterdir())) == 2


def test_several_may_build_at_once(empty_cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(load_library, ["elementwise.c"] * 4))
    assert len(loaded) == 4
    assert len(list(empty_cache.iterdir())) == 1


def test_another_dtype_goes_to_torch_and_is_refused_by_name() -> None:
    shape = KVShape(1, 2, 16, 1, 16, torch.float64)
    assert make_backend("auto", shape, Place()).name == "gather"
    with pytest.raises(ValueError, match=r"holds float32 K/V, not torch\.float64"):
        make_backend("cpu", shape, Place())


@pytest.mark.parametrize(("flags", "eight_bit"), [("", False), ("-mavx2 -mfma -mf16c", True)])
def test_other_processors_give_the_truth_too(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path, flags: str, eight_bit: bool
) -> None:
    """Vectors of other widths, other numbers of rows in registers."""
    if flags and platform.machine() != "x86_64":
        pytest.skip("flags of another processor")
    monkeypatch.setenv("PANDO_CPU_FLAGS", flags)
    contents = Contents([37, 150, 5], 6, 2, 80)
    shape = KVShape(1, 16, 16, 2, 80, torch.float32, eight_bit)
    found, expected = (
        run_schedule(
            make_backend(member, shape, Place()),
            contents,
            random_tables(contents.lengths, shape),
            mixed(contents.lengths),
            AttentionParams(80**-0.5),
        )
        for member in ("cpu", "gather")
    )
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right, atol=2e-5, rtol=1e-5)
    assert len(list(empty_cache.glob("attention-*.so"))) == 1
