from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pando.check import Level, findings
from pando.command import app
from pando.errors import BadSize
from pando.machine import Gpu, Machine, ModelFiles, Torch
from pando.probe import cgroup_bytes, cuda_of, system_bytes
from pando.sizes import parse_size, readable

GIB = 1024**3
GOOD = Machine(
    python=(3, 11, 7),
    libc=("glibc", "2.36"),
    torch=Torch("2.13.0+cpu"),
    gpu=None,
    compiler="/usr/bin/cc",
    available_bytes=16 * GIB,
    model="m",
    model_files=ModelFiles(weights_bytes=GIB // 2, kv_bytes_per_token=46080, converts=True),
    kv_bytes=GIB,
    port=8000,
    port_error=None,
    root="/app",
    package_files={"worker": "/app/worker/__init__.py"},
)
H200 = Gpu("NVIDIA H200", "550.54.15", "12.4")


def said(machine: Machine, level: Level) -> list[str]:
    return [finding.text for finding in findings(machine) if finding.level is level]


def test_a_good_machine_has_nothing_but_ok_in_one_line_each() -> None:
    found = findings(GOOD)
    assert {finding.level for finding in found} == {Level.OK}
    assert len(found) == 9
    assert all("\n" not in f.text and f.text.endswith(".") for f in found)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"python": (3, 10, 1)}, "Python is 3.10.1; Pando needs 3.11"),
        ({"libc": ("glibc", "2.17")}, "glibc is 2.17; torch's wheels need 2.28"),
        ({"torch": None}, "torch is not installed: pip install"),
        ({"torch": Torch("2.9", error="libcudart missing")}, "can't be loaded: libcudart missing"),
        ({"model_files": ModelFiles(error="The folder x lacks config.json.")}, "lacks config.json"),
        ({"available_bytes": GIB}, "but 1.0 GiB are available: lower --kv-memory"),
        ({"kv_bytes": 4096}, "can't hold one token; a token takes 45.0 KiB"),
        ({"port_error": "Address already in use"}, "Port 8000 can't be listened on (Address"),
        ({"package_files": {"proto": "/site/proto/__init__.py"}}, "proto comes from /site/proto"),
        ({"package_files": {"kernels": None}}, "Package kernels can't be found"),
    ],
)
def test_what_keeps_a_worker_from_running_is_a_problem(
    change: dict[str, object], sentence: str
) -> None:
    problems = said(replace(GOOD, **change), Level.PROBLEM)  # type: ignore[arg-type]
    assert len(problems) == 1
    assert sentence in problems[0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"libc": ("", "")}, "C library is unknown, not glibc"),
        ({"compiler": None}, "No C compiler was found"),
        ({"available_bytes": None}, "couldn't be read"),
        ({"available_bytes": int(2.3 * GIB)}, "which is tight"),
        ({"foreign_packages": ("proto-plus",)}, "Package proto-plus is installed"),
        ({"gpu": H200}, "built without CUDA: workers compute on the CPU"),
    ],
)
def test_what_only_slows_a_worker_is_a_warning(change: dict[str, object], sentence: str) -> None:
    machine = replace(GOOD, **change)  # type: ignore[arg-type]
    assert said(machine, Level.PROBLEM) == []
    warnings = said(machine, Level.WARNING)
    assert len(warnings) == 1
    assert sentence in warnings[0]


@pytest.mark.parametrize(
    ("cuda", "gpu", "runs"),
    [
        ("12.4", H200, True),
        ("12.8", H200, True),
        ("13.0", H200, False),
        ("11.8", H200, True),
        ("13.0", Gpu("x", "580.95.05"), True),
        ("13.0", Gpu("x", "575.57"), False),
        ("12.6", Gpu("x", "525.60.13"), True),
        ("99.0", Gpu("x", "525.60.13"), True),
    ],
)
def test_torch_and_driver_fit_within_a_cuda_major_version(cuda: str, gpu: Gpu, runs: bool) -> None:
    machine = replace(GOOD, torch=Torch("2.13.0", cuda), gpu=gpu)
    problems = said(machine, Level.PROBLEM)
    assert (problems == []) == runs
    assert runs or "update the driver, or install a torch built for CUDA" in problems[0]


def test_a_driver_that_is_too_old_is_told_which_would_do() -> None:
    machine = replace(GOOD, torch=Torch("2.13.0", "13.0"), gpu=H200)
    assert "it needs 580.65 or newer" in said(machine, Level.PROBLEM)[0]


def test_a_broken_torch_is_said_once_even_beside_a_gpu() -> None:
    machine = replace(GOOD, torch=None, gpu=H200)
    assert len(said(machine, Level.PROBLEM)) == 1


def test_the_conversion_counts_where_it_needs_more_than_serving() -> None:
    files = ModelFiles(weights_bytes=4 * GIB, kv_bytes_per_token=1, converts=True)
    machine = replace(GOOD, model_files=files, kv_bytes=1024, available_bytes=9 * GIB)
    assert "takes about 9.4 GiB" in said(machine, Level.PROBLEM)[0]
    assert said(replace(machine, model_files=replace(files, converts=False)), Level.PROBLEM) == []


def test_cuda_is_read_off_nvidia_smis_screen() -> None:
    screen = "| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4     |"
    assert cuda_of(screen) == "12.4"
    assert cuda_of("CUDA Version: N/A |") is None
    assert cuda_of("Failed to initialize NVML") is None


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_available_memory_is_read(tmp_path: Path) -> None:
    root = plant(tmp_path, {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"})
    assert system_bytes(root) == 2048 * 1024
    assert system_bytes(tmp_path / "nowhere") is None


@pytest.mark.parametrize("own", ["/", "/pod/box"])
def test_a_cgroups_limit_is_read_with_what_can_be_dropped(tmp_path: Path, own: str) -> None:
    folder = f"sys/fs/cgroup{own.rstrip('/')}"
    root = plant(
        tmp_path,
        {
            "proc/self/cgroup": f"0::{own}\n",
            f"{folder}/memory.max": "1000\n",
            f"{folder}/memory.current": "900\n",
            f"{folder}/memory.stat": "anon 100\ninactive_file 300\n",
        },
    )
    assert cgroup_bytes(root) == 400


def test_an_old_cgroups_limit_is_read(tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "600",
        },
    )
    assert cgroup_bytes(root) == 400


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096), ""])
def test_a_cgroup_without_a_limit_limits_nothing(tmp_path: Path, limit: str) -> None:
    files = {"sys/fs/cgroup/memory.max": limit, "sys/fs/cgroup/memory.current": "1"}
    assert cgroup_bytes(plant(tmp_path, files)) is None


@pytest.mark.parametrize(
    ("text", "size"), [("1GiB", GIB), ("1.5 GB", 1_500_000_000), ("512MiB", 512 << 20), ("7", 7)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "1 GiBs", "-1"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(BadSize, match="is no size"):
        parse_size(text)


def test_sizes_are_written_in_the_largest_unit() -> None:
    assert [readable(n) for n in (0, 1023, 1536, GIB)] == ["0 B", "1023 B", "1.5 KiB", "1.0 GiB"]


def test_this_machine_is_checked_in_one_line_a_finding(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", "--model", str(tmp_path), "--port", "18080"])
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert all(line.split()[0] in ("ok", "warning", "problem") for line in lines)
    assert f"problem  The model folder {tmp_path} lacks config.json" in result.output
