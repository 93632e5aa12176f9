"""Starts one engine on this machine and yields where it answers.

Each gets the same weights, float32, the same number of threads, and its prefix cache on.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from loadtest.errors import FleetFailed
from loadtest.peers.gguf_file import write_gguf
from pando.children import Children
from pando.ports import free_ports
from pando.up import ROOT

START_TIMEOUT_S = 600.0
POLL_S = 0.5
SERVED_NAME = "peer"
SLOTS = 32
SLOT_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Served:
    """A running engine: where it answers and whose CPU time is its."""

    url: str
    pid: int


@dataclass(frozen=True, slots=True)
class Wish:
    """model: a name or path that a worker takes. python: the interpreter that has the engine."""

    model: str
    threads: int
    python: str = sys.executable


def model_folder(model: str) -> str:
    """Returns the Hugging Face folder of a model, converted if need be."""
    command = [sys.executable, "-m", "worker.model.prepare", "--model", model]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FleetFailed(done.stderr.strip())
    return done.stdout.strip()


@contextmanager
def pando(wish: Wish) -> Iterator[Served]:
    """One gateway and one worker."""
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="pando-loadtest-") as logs:
        flags = ["--model", wish.model, "--workers", "1", "--threads", str(wish.threads)]
        command = [sys.executable, "-m", "pando.command", "up", "--port", str(port), *flags]
        with _serving("pando", [*command, "--log-folder", logs], port, {}) as served:
            yield served


@contextmanager
def vllm(wish: Wish) -> Iterator[Served]:
    """vLLM's CPU build; `wish.python` must have it."""
    [port] = free_ports(1)
    command = [wish.python, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", model_folder(wish.model), "--served-model-name", SERVED_NAME]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--enforce-eager", "--enable-prefix-caching", "--max-model-len", "4096"]
    environment = {
        "OMP_NUM_THREADS": str(wish.threads),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    with _serving("vllm", command, port, environment) as served:
        yield served


@contextmanager
def llama_cpp(wish: Wish) -> Iterator[Served]:
    """llama.cpp's server with room for 32 requests; `wish.python` must have xllamacpp."""
    [port] = free_ports(1)
    script = ROOT / "loadtest" / "peers" / "llama_server.py"
    with tempfile.TemporaryDirectory(prefix="pando-gguf-") as folder:
        file = Path(folder) / "model.gguf"
        write_gguf(Path(model_folder(wish.model)), file)
        sizes = [str(number) for number in (port, wish.threads, SLOTS, SLOT_TOKENS)]
        command = [wish.python, "-I", str(script), str(file), *sizes]
        with _serving("llama_cpp", command, port, {}) as served:
            yield served


def lacks(python: str, module: str) -> bool:
    """Whether that interpreter can't be run or doesn't find the module."""
    asked = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({module!r}))"
    try:
        return subprocess.run([python, "-I", "-c", asked], check=False).returncode != 0
    except OSError:
        return True


@contextmanager
def _serving(
    name: str, command: list[str], port: int, environment: dict[str, str]
) -> Iterator[Served]:
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix=f"pando-{name}-") as folder:
        # A folder of its own to run in: a checkout on the path would shadow the peer's modules.
        cwd = ROOT if name == "pando" else Path(folder)
        with Children(Path(folder), cwd) as children:
            child = children.start(name, command, environment)
            began = time.monotonic()
            while not _has_models(url):
                if child.process.poll() is not None:
                    raise FleetFailed(f"{name} did not start:\n{child.last_lines()}")
                if time.monotonic() - began > START_TIMEOUT_S:
                    raise FleetFailed(f"{name} is not ready after {START_TIMEOUT_S:.0f} s.")
                time.sleep(POLL_S)
            yield Served(url, child.process.pid)


def _has_models(url: str) -> bool:
    try:
        answer = httpx.get(f"{url}/v1/models", timeout=2.0)
        return answer.is_success and bool(answer.json()["data"])
    except (httpx.HTTPError, ValueError, KeyError):
        return False


SERVERS = {"pando": pando, "vllm": vllm, "llama_cpp": llama_cpp}
