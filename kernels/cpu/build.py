"""Builds the C sources with the system's compiler at first use and loads them.

Finished libraries lie in `kernels` in $PANDO_CACHE (default: $XDG_CACHE_HOME/pando, then
~/.cache/pando) under a name that digests source, flags, compiler and processor. A build goes to a
temporary name first and is renamed, so several workers may build at once. $PANDO_CPU_FLAGS, such as
"-march=x86-64-v3", takes the place of the flags for this very processor.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
TIMEOUT_S = 120.0
ATTEMPTS = 3
FLAGS = (
    "-O3",
    "-std=gnu11",
    "-shared",
    "-fPIC",
    "-pthread",
    "-fno-math-errno",
    "-ffp-contract=fast",
    "-w",
)
# Tried in this order: not every compiler knows every flag. Each list is complete in itself.
TARGETS = (
    ("-march=native", "-mprefer-vector-width=512"),
    ("-march=native",),
    ("-mcpu=native",),
    (),
)


class BuildError(Exception):
    """No compiler was found, or it refused the source. The message says which."""


def load_library(source: str, macros: dict[str, int] | None = None) -> ctypes.CDLL:
    """Returns the library built from one C file of this folder, building it when not cached.

    Raises BuildError; the caller falls back to torch.
    """
    try:
        return ctypes.CDLL(str(_built(source, tuple(sorted((macros or {}).items())))))
    except OSError as error:
        raise BuildError(f"cannot load the compiled {source}: {error}") from error


def cache_folder() -> Path:
    """The folder of built libraries; not created here."""
    if explicit := os.environ.get("PANDO_CACHE"):
        return Path(explicit) / "kernels"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "pando" / "kernels"


def _built(source: str, macros: tuple[tuple[str, int], ...]) -> Path:
    compiler = _compiler()
    defines = [f"-D{name}={value}" for name, value in macros]
    target = cache_folder() / f"{Path(source).stem}-{_digest(compiler, source, defines)}.so"
    if not target.exists():
        _compile(compiler, source, defines, target)
    return target


def _targets() -> tuple[tuple[str, ...], ...]:
    wished = os.environ.get("PANDO_CPU_FLAGS")
    return TARGETS if wished is None else (tuple(shlex.split(wished)),)


def _compiler() -> str:
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and (found := shutil.which(name)):
            return found
    raise BuildError("no C compiler found (looked for $CC, cc, gcc, clang)")


def _digest(compiler: str, source: str, defines: list[str]) -> str:
    digest = hashlib.sha256()
    for path in (SOURCES / source, *sorted(SOURCES.glob("*.h"))):
        digest.update(path.read_bytes())
    for part in (*FLAGS, str(_targets()), *defines, _version(compiler), _processor()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:24]


def _version(compiler: str) -> str:
    """Names the compiler by its file: a worker whose libraries are there starts no process.

    One that can't be run for a moment would else give a worker other bits than its fleet has.
    """
    file = Path(compiler).resolve()
    try:
        kept = file.stat()
    except OSError as error:
        raise BuildError(f"{compiler} can't be looked at: {error}") from error
    return f"{file} {kept.st_size} {kept.st_mtime_ns}"


@functools.cache
def _processor() -> str:
    """Names the instruction set, so that a cache on a shared disk never serves another one's."""
    wanted = ("model name", "flags", "Features", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    seen = sorted({line for line in lines if line.startswith(wanted)})
    return "\n".join([platform.machine(), platform.processor(), *seen])


def _compile(compiler: str, source: str, defines: list[str], target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(suffix=".so", dir=target.parent)
    except OSError as error:
        raise BuildError(f"cannot write to {target.parent}: {error}") from error
    os.close(handle)
    try:
        _try_targets(compiler, [*defines, str(SOURCES / source), "-o", temporary, "-lm"])
        Path(temporary).chmod(0o755)
        Path(temporary).replace(target)
    finally:
        Path(temporary).unlink(missing_ok=True)
    logger.info("built %s as %s", source, target)


def _try_targets(compiler: str, arguments: list[str]) -> None:
    complaint = ""
    for flags in _targets():
        command = [compiler, *FLAGS, *flags, *arguments]
        run = _run(command)
        if run.returncode == 0:
            return
        complaint = complaint or run.stderr.strip()[-500:]
    raise BuildError(f"{compiler} refused the source: {complaint}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs the compiler; again where it could not be started or did not end."""
    for left in reversed(range(ATTEMPTS)):
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            if not left:
                raise BuildError(f"{command[0]} failed: {error}") from error
    raise AssertionError("the last attempt returns or raises")
