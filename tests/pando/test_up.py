from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pando.announcement import Serving, announcement, curl_line, openai_snippet
from pando.command import app, default_log_folder, num_cores
from pando.errors import StartFailed
from pando.ports import client_url, free_ports, refuse_taken_port
from pando.up import UpOptions, gateway_flags, worker_flags

FAKE = Path(__file__).with_name("fake_fleet.py")
ROOT = Path(__file__).resolve().parents[2]
SERVING = Serving("http://127.0.0.1:8000", "smollm2", 2, "radix", Path("/logs"))

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `pando up` over fake processes; all of them run in tmp_path, which marks them."""
    (tmp_path / "port").write_text(str(free_ports(1)[0]))
    running: list[subprocess.Popen[str]] = []

    def begin(prepare: str = "well", worker: str = "well", gateway: str = "well") -> Popen:
        process = subprocess.Popen(
            [sys.executable, str(FAKE), "up", str(tmp_path), prepare, worker, gateway],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


Popen = subprocess.Popen[str]


def wait_for_announcement(process: Popen) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("Ctrl-C"):
            return "".join(lines)
    raise AssertionError(f"never up: {process.stderr and process.stderr.read()}")


def left_behind(folder: Path) -> list[int]:
    """Processes that were started in the folder and still live."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                here = (entry / "cwd").readlink() == folder
                zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if here and not zombie:
                found.append(int(entry.name))
    return found


def wait_until_none_is_left(folder: Path) -> None:
    deadline = time.monotonic() + 5
    while left_behind(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left_behind(folder) == []


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_ends_everything_and_is_no_failure(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    process = start()
    text = wait_for_announcement(process)
    assert "Pando serves fake-model at http://127.0.0.1" in text
    assert "(2 workers, prefix cache radix)" in text
    assert len(left_behind(tmp_path)) == 3
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "worker-1 | worker is up" in errors
    wait_until_none_is_left(tmp_path)


@linux
def test_a_stop_while_it_loads_ends_everything(start: Start, tmp_path: Path) -> None:
    process = start(gateway="well", worker="well")
    while not left_behind(tmp_path):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 0
    wait_until_none_is_left(tmp_path)


@linux
def test_the_end_of_the_gateway_is_the_end_of_all(start: Start, tmp_path: Path) -> None:
    process = start(gateway="dies")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "gateway was killed by signal 6. The end of its log:" in errors
    assert "gateway is up" in errors
    said, end = errors.index("killed by signal 6; the workers leave"), errors.index("The end of")
    assert said < end, "told at once, not when the last worker has left"
    wait_until_none_is_left(tmp_path)


def pids_of(folder: Path, name: str) -> list[int]:
    """The processes of the folder whose command line has the word as a word of its own."""
    found = []
    for pid in left_behind(folder):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if name.encode() in words:
            found.append(pid)
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill(folder: Path, name: str) -> int:
    [pid] = pids_of(folder, name)
    os.kill(pid, signal.SIGKILL)
    return pid


@linux
def test_a_worker_that_died_is_started_again_under_its_name(start: Start, tmp_path: Path) -> None:
    process = start()
    wait_for_announcement(process)
    others = pids_of(tmp_path, "gateway") + pids_of(tmp_path, "worker-0")
    before = kill(tmp_path, "worker-1")
    log = tmp_path / "logs" / "worker-1.log"
    until(lambda: log.read_text().count("worker is up") == 2)
    assert pids_of(tmp_path, "worker-1") != [before]
    assert pids_of(tmp_path, "gateway") + pids_of(tmp_path, "worker-0") == others
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "worker-1 was killed by signal 9; it is started again in 0.05 s. Its log is" in errors


@linux
def test_a_worker_that_cannot_live_is_given_up_and_the_last_one_ends_all(
    start: Start, tmp_path: Path
) -> None:
    process = start(worker="mortal")
    wait_for_announcement(process)
    kill(tmp_path, "worker-0")
    log = tmp_path / "logs" / "worker-0.log"
    until(lambda: log.read_text().count("this is why") == 2)
    time.sleep(0.5)  # it would be started once more by now
    assert log.read_text().count("this is why") == 2
    assert process.poll() is None
    assert len(left_behind(tmp_path)) == 2
    kill(tmp_path, "worker-1")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    ending = "ended with status 1 soon after its start, 3 times in a row"
    assert f"worker-0 {ending}: it is not started again. Its log is" in errors
    assert f"No worker can be kept alive: worker-1 {ending}. The end of its log:" in errors
    assert errors.rstrip().endswith("this is why")
    wait_until_none_is_left(tmp_path)


@linux
def test_the_gateway_leaves_while_workers_are_still_there(start: Start, tmp_path: Path) -> None:
    process = start(gateway="curious")
    wait_for_announcement(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    log = (tmp_path / "logs" / "gateway.log").read_text()
    assert log.count("a worker is there") == 2
    assert "--shutdown-s 5" in log
    wait_until_none_is_left(tmp_path)


@linux
@pytest.mark.parametrize("name", ["worker", "gateway"])
def test_a_failed_start_shows_the_end_of_the_log(start: Start, tmp_path: Path, name: str) -> None:
    process = start(**{name: "fails"})
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "ended with status 3. The end of its log:\nthis is why" in errors
    wait_until_none_is_left(tmp_path)


def test_a_model_that_cannot_be_prepared_is_said_in_its_own_words(start: Start) -> None:
    process = start(prepare="fails")
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors.strip()) == (1, "this is why")


@linux
@pytest.mark.parametrize("mood", ["well", "stubborn"])
def test_nothing_is_left_when_the_command_itself_is_killed(
    start: Start, tmp_path: Path, mood: str
) -> None:
    process = start(worker=mood)
    wait_for_announcement(process)
    process.kill()
    wait_until_none_is_left(tmp_path)


@linux
def test_what_a_child_started_ends_with_it(start: Start, tmp_path: Path) -> None:
    process = start(worker="parent")
    wait_for_announcement(process)
    assert len(left_behind(tmp_path)) == 5
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    wait_until_none_is_left(tmp_path)


def test_a_taken_port_is_said_before_anything_starts(start: Start, tmp_path: Path) -> None:
    port = int((tmp_path / "port").read_text())
    with socket.create_server(("127.0.0.1", port)):
        process = start()
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert f"Port {port} on 127.0.0.1 can't be listened on" in errors.replace("\n", " ")
    assert "choose another one with --port" in errors.replace("\n", " ")
    assert not (tmp_path / "logs").exists()


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(StartFailed, match=r"192\.0\.2\.1 can't be listened on"):
        refuse_taken_port("192.0.2.1", free_ports(1)[0])


def test_free_ports_are_all_different() -> None:
    assert len(set(free_ports(20))) == 20


def options(**changed: object) -> UpOptions:
    values: dict[str, object] = {
        "model": "m",
        "num_workers": 2,
        "host": "0.0.0.0",
        "port": 8000,
        "prefix_cache": "block",
        "page_size": 32,
        "kv_memory": "2GiB",
        "threads": 3,
        "log_folder": Path("/logs"),
    }
    return UpOptions(**(values | changed))  # type: ignore[arg-type]


def test_workers_get_what_was_asked_for() -> None:
    flags = worker_flags(options(worker_flags=("--dtype", "float32")), "worker-1", "h:1", 9)
    assert " ".join(flags) == (
        "--name worker-1 --listen h:1 --model m --prefix-cache block --page-size 32 "
        "--kv-memory 2GiB --threads 3 --metrics-port 9 --drain-s 5 --dtype float32"
    )


def test_the_gateway_gets_every_worker_by_name() -> None:
    flags = gateway_flags(options(), {"worker-0": "h:1", "worker-1": "h:2"})
    assert " ".join(flags) == (
        "--host 0.0.0.0 --port 8000 --shutdown-s 5 --worker worker-0=h:1 --worker worker-1=h:2"
    )


def test_the_gateway_gets_its_own_settings_wherever_it_runs(tmp_path: Path) -> None:
    config = Path(os.path.relpath(tmp_path / "gateway.yaml"))
    flags = gateway_flags(options(gateway_config=config, shutdown_s=0.5), {})
    assert flags[0] == "--config"
    assert Path(flags[1]).is_absolute()
    assert Path(flags[1]).resolve() == (tmp_path / "gateway.yaml").resolve()
    assert flags[-2:] == ["--shutdown-s", "0.5"]


def test_settings_that_are_not_there_are_said_before_anything_starts(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["up", "--gateway-config", str(tmp_path / "no.yaml")])
    assert result.exit_code == 2
    assert "does not exist" in result.output


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("example", "http://example:80"),
    ],
)
def test_the_url_reaches_what_listens_there(host: str, url: str) -> None:
    assert client_url(host, 80) == url


def test_the_curl_line_is_one_command() -> None:
    words = shlex.split(curl_line(SERVING))
    assert words[:3] == ["curl", "-s", "http://127.0.0.1:8000/v1/chat/completions"]
    assert '"model": "smollm2"' in words[-1]
    assert curl_line(SERVING) in announcement(SERVING)


def test_where_a_key_is_needed_both_ways_send_it() -> None:
    keyed = replace(SERVING, needs_key=True)
    assert "authorization: Bearer $KEY" in shlex.split(curl_line(keyed))
    assert 'api_key=os.environ["KEY"]' in openai_snippet(keyed)
    compile(openai_snippet(keyed), "snippet", "exec")


def test_it_says_where_python_metrics_and_logs_are() -> None:
    text = announcement(SERVING)
    assert sys.executable in text
    assert "http://127.0.0.1:8000/metrics, logs in /logs." in text


def test_the_snippet_is_a_program() -> None:
    compile(openai_snippet(SERVING), "snippet", "exec")
    assert openai_snippet(SERVING) in announcement(SERVING)
    assert "temperature=0" in openai_snippet(SERVING)
    assert '"temperature": 0' in curl_line(SERVING)


def test_a_size_that_is_none_is_refused() -> None:
    result = CliRunner().invoke(app, ["up", "--kv-memory", "lots"])
    assert result.exit_code == 1
    assert "'lots' is no size" in result.output


def test_defaults_follow_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PANDO_CACHE", "/c")
    assert default_log_folder(80) == Path("/c/logs/80")
    assert num_cores() >= 1
