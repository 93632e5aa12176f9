from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from pando.children import Child, Children

# Says "up" once it deals with signals as it means to.
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True)"
CHATTY = "print('one'); print('two', flush=True); print('thr', end='', flush=True)"
SLEEP = "; time.sleep(600)"


def wait_for(child: Child, text: str) -> None:
    deadline = time.monotonic() + 10
    while text not in child.log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    with Children(tmp_path, tmp_path, grace_s=0.2) as children:
        child = children.start("a", [sys.executable, "-c", STUBBORN + SLEEP])
        wait_for(child, "up")
    assert child.process.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="zombies of others are reaped by init there")
def test_offspring_that_ignores_sigterm_is_killed_too(tmp_path: Path) -> None:
    inner = f"{STUBBORN}; import os; print('pid', os.getpid(), flush=True){SLEEP}"
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {inner!r}])"
    with Children(tmp_path, tmp_path, grace_s=5) as children:
        child = children.start("a", [sys.executable, "-c", f"{program}; import time{SLEEP}"])
        wait_for(child, "pid ")
        pid = int(child.log.read_text().split()[-1])
        assert alive(pid)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_leaving_by_an_error_ends_them_too(tmp_path: Path) -> None:
    started: list[Child] = []

    def fail() -> None:
        with Children(tmp_path, tmp_path) as children:
            started.append(children.start("a", ["sleep", "600"]))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert started[0].process.returncode == -signal.SIGTERM


def test_whole_lines_are_shown_once(tmp_path: Path) -> None:
    with Children(tmp_path, tmp_path) as children:
        child = children.start("a", [sys.executable, "-c", f"import time; {CHATTY}{SLEEP}"])
        wait_for(child, "thr")
        assert child.fresh_lines() == ["one", "two"]
        assert child.fresh_lines() == []
        assert child.last_lines(2) == "two\nthr"


def test_one_that_has_ended_is_noticed_until_it_is_forgotten(tmp_path: Path) -> None:
    with Children(tmp_path, tmp_path) as children:
        child = children.start("a", ["true"])
        child.process.wait()
        assert children.dead() is child
        children.forget(child)
        assert children.dead() is None


def test_a_second_one_of_a_name_writes_behind_the_first_ones_log(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("of another day")
    with Children(tmp_path, tmp_path) as children:
        for text in ("one", "two"):
            child = children.start("a", ["echo", text])
            child.process.wait()
            assert child.fresh_lines() == [text]
            children.forget(child)
    assert (tmp_path / "a.log").read_text() == "one\ntwo\n"


def test_one_can_be_ended_before_the_others(tmp_path: Path) -> None:
    with Children(tmp_path, tmp_path) as children:
        first, second = (children.start(name, ["sleep", "600"]) for name in "ab")
        children.end(second, grace_s=5)
        assert second.process.returncode == -signal.SIGTERM
        assert children.running == (first,)
        assert first.process.poll() is None
