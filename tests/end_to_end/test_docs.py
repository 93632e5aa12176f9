"""The examples of docs/tenants.md, pasted from top to bottom into two terminals of a new folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from gateway.tenant_config import TenantConfig
from pando.ports import free_ports
from tests.end_to_end.conftest import ROOT, Fleet

PAGE = (ROOT / "docs" / "tenants.md").read_text()
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


class Terminals:
    """Two shells whose home is the test's, with the page's ports replaced by free ones."""

    def __init__(self, home: Path):
        self.port, self.admin_port = free_ports(2)
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self.env = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": cache}
        self.env.pop("PANDO_ADMIN_KEY", None)
        self.env["PANDO_ADMIN_URL"] = f"http://127.0.0.1:{self.admin_port}"

    def text(self, block: str) -> str:
        """The block, on free ports, with this interpreter's folder and a smaller fleet."""
        small = f"--port {self.port} --workers 1 --threads 1 --kv-memory 128MiB"
        for before, after in (
            ("$PWD/.venv/bin", str(Path(sys.executable).parent)),
            ("127.0.0.1:8000", f"127.0.0.1:{self.port}"),
            ("127.0.0.1:8001", f"127.0.0.1:{self.admin_port}"),
            ("port: 8001", f"port: {self.admin_port}"),
            ("pando up ", f"exec pando up {small} "),
        ):
            block = block.replace(before, after)
        return block

    @contextmanager
    def serving(self, block: str) -> Iterator[Fleet]:
        """What the first block starts, once it serves; it has ended afterwards."""
        process = subprocess.Popen(
            ["bash", "-euc", self.text(block)],
            cwd=ROOT,
            env=self.env,
            stdout=subprocess.DEVNULL,
        )
        fleet = Fleet(f"http://127.0.0.1:{self.port}", process, Path())

        def ready() -> bool:
            assert process.poll() is None, "it ended"
            try:
                return httpx.get(f"{fleet.url}/ready").status_code == 200
            except httpx.TransportError:
                return False

        try:
            fleet.eventually(ready, 300)
            yield fleet
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@needs_curl
def test_a_tenants_life_can_be_pasted(smollm2_folder: Path, tmp_path: Path) -> None:
    terminals = Terminals(tmp_path)
    first, *rest = blocks("sh")
    with terminals.serving(first):
        second = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", terminals.text("\n".join(rest))],
            check=False,
            cwd=ROOT,
            env=terminals.env,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert second.returncode == 0, second.stderr
    told = second.stdout
    assert '"finish_reason":"length"' in told
    errors = re.findall(r'\{"error":\{.*?\}\}', told)
    assert len(errors) == 1
    assert without_numbers(errors[0]) == without_numbers(blocks("json")[0].strip())
    assert set(json.loads(errors[0])["error"]) == {"message", "type", "param", "code"}
    assert told.endswith('{"id":"acme","deleted":true}')
    assert "Warning" not in second.stderr
    assert (tmp_path / "pando-tenants" / "tenants.yaml").read_text().strip() == "tenants: []"


def without_numbers(text: str) -> str:
    return re.sub(r"\d+\.\d+", "N", text)


def test_the_tenant_of_the_page_is_one() -> None:
    [tenant, *_] = blocks("yaml")
    read = msgspec.yaml.decode(tenant, type=TenantConfig)
    assert len(read.all_keys) == 2
