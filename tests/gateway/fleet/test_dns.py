"""Workers found by a real name service, as the pods of a headless service are: `dns_play` acts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pando.children import dying_with_us
from tests.gateway.fleet.dns_play import SCENES, Scene

ROOT = Path(__file__).resolve().parents[3]
# As root, and as anybody where that is allowed.
WAYS = (["--net", "--mount"], ["--map-root-user", "--net", "--mount"])


def apart() -> list[str]:
    """How to run a program in namespaces of its own; skips the test where nobody may."""
    said = []
    for flags in WAYS:
        command = ["unshare", *flags]
        try:
            subprocess.run([*command, "true"], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said.append(str(getattr(error, "stderr", "") or error).strip())
        else:
            return command
    pytest.skip(f"namespaces of its own are not allowed here: {'; '.join(said)}")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """The whole play, once."""
    folder = tmp_path_factory.mktemp("dns")
    act = [*apart(), sys.executable, "-m", "tests.gateway.fleet.dns_play", str(folder)]
    return subprocess.run(
        dying_with_us(act), cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_as_pods_come_and_go(played: subprocess.CompletedProcess[str], scene: Scene) -> None:
    told = [json.loads(line) for line in played.stdout.splitlines()]
    assert scene.__name__ in [one["scene"] for one in told], played.stderr[-4000:]
    assert played.returncode == 0, played.stderr[-4000:]
    assert set(told[-1]["answers"]) == {"200"}
