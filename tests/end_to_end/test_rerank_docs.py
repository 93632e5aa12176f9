"""The examples of docs/rerank.md, pasted into two terminals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pando.ports import free_ports
from tests.end_to_end.conftest import ROOT, Fleet, _num_linked

PAGE = (ROOT / "docs" / "rerank.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PORTS = ("8000", "7101", "7102")

Paste = Callable[[str], str]


@pytest.fixture
def paste(smollm2_folder: Path) -> Iterator[Paste]:
    """Runs a block in the second terminal, beside what the first block has started."""
    ports = dict(zip(PORTS, map(str, free_ports(3)), strict=True))

    def text(block: str) -> str:
        block = block.replace("$PWD/.venv/bin", str(Path(sys.executable).parent))
        block = re.sub(r"(?<=127\.0\.0\.1:)\d+|(?<=--port )\d+", lambda m: ports[m[0]], block)
        return block.replace("-m worker", "-m worker --kv-memory 128MiB")

    def run(block: str) -> str:
        command = ["bash", "-euo", "pipefail", "-c", text(block)]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        return done.stdout

    first = subprocess.Popen(
        ["bash", "-euc", text(BLOCKS[0])],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    fleet = Fleet(f"http://127.0.0.1:{ports['8000']}", first, Path())
    try:
        fleet.eventually(lambda: _num_linked(fleet.url) == 2, 300)
        yield run
    finally:
        os.killpg(first.pid, signal.SIGTERM)
        first.wait(60)
        fleet.eventually(lambda: not _alive(first.pid))


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_the_examples_can_be_pasted(paste: Paste) -> None:
    ranking = json.loads(paste(BLOCKS[1]))
    [best] = ranking["results"]
    assert best.keys() == {"index", "relevance_score", "document"}
    assert ranking["usage"]["prompt_tokens_details"]["cached_tokens"] >= 48
    told = re.split(r"(?<=\})(?=\{)", paste(BLOCKS[2]).replace("\n", ""))
    scored, embedded, tokens, text = map(json.loads, told)
    assert [one["index"] for one in scored["data"]] == [0, 1]
    assert [len(one["embedding"]) for one in embedded["data"]] == [384, 384]
    assert tokens["count"] == len(tokens["tokens"]) > 3
    assert text == {"prompt": "Hello, world!"}
    assert len(BLOCKS) == 3


def _alive(group: int) -> bool:
    """Whether a process of the group is left: the shell started workers in the background."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
