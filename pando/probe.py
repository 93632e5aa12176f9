"""Looks at the machine for `check`. Only reads; what can't be found out is None."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pando.machine import Gpu, Machine, ModelFiles, Torch
from pando.up import ROOT

TIMEOUT_S = 120.0
OUR_NAMES = ("proto", "kernels", "process", "gateway", "worker", "pando", "loadtest")
# Distributions known to install a top-level package under one of our names.
FOREIGN = ("kernels", "proto-plus")
TORCH_PROGRAM = """
import json, torch
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda}))
"""
NAMES_PROGRAM = f"""
import importlib.util, json
found = {{name: importlib.util.find_spec(name) for name in {OUR_NAMES!r}}}
print(json.dumps({{name: spec and spec.origin for name, spec in found.items()}}))
"""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a worker shall run here: the model, bytes for K/V pages, the gateway's port."""

    model: str
    kv_bytes: int
    port: int


def probe(wish: Wish) -> Machine:
    """Returns the machine as it is now."""
    return Machine(
        python=sys.version_info[:3],
        libc=platform.libc_ver(),
        torch=_torch(),
        gpu=_gpu(),
        compiler=_compiler(),
        available_bytes=_available_bytes(Path("/")),
        model=wish.model,
        model_files=_model_files(wish.model),
        kv_bytes=wish.kv_bytes,
        port=wish.port,
        port_error=_port_error(wish.port),
        root=str(ROOT),
        package_files=json.loads(_python("-c", NAMES_PROGRAM).stdout or "{}"),
        foreign_packages=tuple(name for name in FOREIGN if _version(name)),
    )


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs this Python where a worker would be started; too long is a failure like any other."""
    command = [sys.executable, *arguments]
    try:
        return subprocess.run(
            command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no end after {TIMEOUT_S:.0f} s")


def _torch() -> Torch | None:
    installed = _version("torch")
    if installed is None:
        return None
    run = _python("-c", TORCH_PROGRAM)
    if run.returncode:
        return Torch(installed, error=_last_line(run.stderr))
    return Torch(**json.loads(run.stdout))


def _gpu() -> Gpu | None:
    if not shutil.which("nvidia-smi"):
        return None
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = _output(query).splitlines()
    if not found or "," not in found[0]:
        return None
    name, _, driver = found[0].rpartition(", ")
    return Gpu(name, driver.strip(), cuda_of(_output(["nvidia-smi"])))


def cuda_of(screen: str) -> str | None:
    """Returns the CUDA version out of nvidia-smi's screen, or None where it shows none."""
    _, found, rest = screen.partition("CUDA Version:")
    version = rest.split()[0] if found and rest.split() else ""
    return version if version[:1].isdigit() else None


def _compiler() -> str | None:
    names = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _model_files(model: str) -> ModelFiles:
    given = str(Path(model).absolute()) if Path(model).exists() else model
    run = _python("-m", "worker.model.footprint", "--model", given)
    if run.returncode:
        return ModelFiles(error=_last_line(run.stderr))
    found = json.loads(run.stdout)
    return ModelFiles(
        found["weights_bytes"], found["kv_bytes_per_token"], found["path"].endswith(".gguf")
    )


def _available_bytes(root: Path) -> int | None:
    """The least of what the system has available and what the cgroup still allows."""
    limits = [limit for limit in (system_bytes(root), cgroup_bytes(root)) if limit is not None]
    return min(limits, default=None)


def system_bytes(root: Path) -> int | None:
    """Returns MemAvailable. root: "/", or a planted tree."""
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def cgroup_bytes(root: Path) -> int | None:
    """Returns what the memory cgroup (version 2, else 1) still allows; None without a limit.

    Page cache that can be dropped counts as allowed.
    """
    folder, names = _cgroup(root)
    limit = "".join(_lines(folder / names[0]))
    used = "".join(_lines(folder / names[1]))
    if not limit.isdigit() or not used.isdigit() or int(limit) >= 1 << 60:
        return None
    statistics = (line.split() for line in _lines(folder / "memory.stat"))
    droppable = {name: int(value) for name, value in statistics}.get(names[2], 0)
    return max(0, int(limit) - int(used) + droppable)


def _cgroup(root: Path) -> tuple[Path, tuple[str, str, str]]:
    two = root / "sys/fs/cgroup"
    lines = _lines(root / "proc/self/cgroup")
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    for folder in (two / own.lstrip("/"), two):
        if (folder / "memory.max").exists():
            return folder, ("memory.max", "memory.current", "inactive_file")
    one = two / "memory"
    return one, ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _port_error(port: int) -> str | None:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2] or "it ended without a word"
