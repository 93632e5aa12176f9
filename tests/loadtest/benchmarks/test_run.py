"""Benchmarks run one by one: what they say, how they fail, how they are ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec

from loadtest.benchmarks import results, shown
from loadtest.benchmarks.document import blocks
from loadtest.benchmarks.entry import PICTURE, Bound
from loadtest.benchmarks.results import Result
from loadtest.benchmarks.run import report
from loadtest.report import summary_line
from pando.up import ROOT
from tests.loadtest.benchmarks import fakes

GOOD = "print('x: x=4 y=words')"
# Starts a child of its own, tells both, and would stay.
STAYS = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", "sleep", "600"], process_group=0)
try:
    pathlib.Path("started.new").write_text(f"{os.getpid()} {child.pid}")
    pathlib.Path("started.new").rename("started")
    time.sleep(600)
finally:
    child.wait() if child.kill() else child.wait()
    pathlib.Path("ended").write_text("in order")
"""


def text_of(folder: Path, name: str) -> str:
    page = (folder / "benchmarks.md").read_text()
    block = blocks(page)[name]
    return page[block.start : block.end]


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_what_a_command_says_stands_in_its_block(tmp_path: Path) -> None:
    drawn = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('<svg/>')\n" + GOOD
    good = fakes.entry(tmp_path, "good", drawn)
    good = replace(good, command=(*good.command, PICTURE), picture="good.svg")
    bad = fakes.entry(tmp_path, "bad", "print('x=2.9')")
    course = fakes.bench(tmp_path, [good, bad]).run([good, bad])
    told = text_of(tmp_path, "good")
    assert "| x | 4 | >= 3 | met |" in told
    assert "| y | words |  |  |" in told
    assert "`python -m fake_good good.svg`\n2026-11-30, commit abc1234: " in told
    assert told.endswith("![Shows good.](pictures/good.svg)\n")
    assert (tmp_path / "pictures" / "good.svg").read_text() == "<svg/>"
    assert "| x | 2.9 | >= 3 | not met |" in text_of(tmp_path, "bad")
    summary = text_of(tmp_path, "summary")
    assert "| [good](#good) | Shows good. | x 4 | 1 of 1 | 2026-11-30" in summary
    assert "| [bad](#bad) | Shows bad. | x 2.9 | **0 of 1** | 2026-11-30" in summary
    assert course.num_failed == 0
    line = summary_line(report(course))
    assert line.startswith("bench: benchmarks=2 failed=0 wanted=2 met=1 seconds=")
    assert "x=4" in (tmp_path / "logs" / "good.log").read_text()


def test_what_fails_is_named_and_the_others_run(tmp_path: Path) -> None:
    entries = [
        fakes.entry(tmp_path, "status", "print('x=4'); raise SystemExit('a | b <!-- end -->')"),
        fakes.entry(tmp_path, "silent", "print('no figures')"),
        fakes.entry(tmp_path, "other", "print('y=4')"),
        fakes.entry(tmp_path, "good", GOOD),
    ]
    course = fakes.bench(tmp_path, entries).run(entries)
    assert course.num_failed == 3
    words = {one.name: text_of(tmp_path, one.name).partition("**Failed**: ")[2] for one in entries}
    assert words["status"].startswith(
        r"status 1, behind the words: a \| b \<!-- end -->. Its output"
    )
    assert words["silent"].startswith("its last line has no figures. Its output")
    assert words["other"].startswith("its last line has no x. Its output")
    assert words["good"] == ""
    assert text_of(tmp_path, "summary").count("**failed**") == 3
    assert (tmp_path / "benchmarks.md").read_text().endswith("the end\n")


def test_the_limit_ends_a_command_and_what_it_started(tmp_path: Path) -> None:
    for limit_s in (0.5, 4.0, 30.0):  # until the machine gave it time to start
        stays = fakes.entry(tmp_path, "stays", STAYS, limit_s)
        entries = [stays, fakes.entry(tmp_path, "good", GOOD)]
        course = fakes.bench(tmp_path, entries).run(entries)
        assert course.num_failed == 1
        assert f"**Failed**: ended after {limit_s:g} s, its limit" in text_of(tmp_path, "stays")
        assert "| x | 4 |" in text_of(tmp_path, "good")
        if (tmp_path / "started").exists():
            break
    assert not any(is_there(int(pid)) for pid in (tmp_path / "started").read_text().split())
    assert (tmp_path / "ended").read_text() == "in order"


PROGRAM = """
import sys
from pathlib import Path
from tests.loadtest.benchmarks import fakes
folder = Path(sys.argv[1])
entries = [fakes.entry(folder, "good", "print('x=4')"), fakes.entry(folder, "stays", sys.argv[2])]
course = fakes.bench(folder, entries).run([*entries, entries[0]])
sys.exit(130 if course.is_interrupted and len(course.done) == 1 else 1)
"""


def test_an_interrupt_ends_the_command_and_keeps_what_there_is(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), STAYS]
    process = subprocess.Popen(command, cwd=ROOT, process_group=0)
    started = tmp_path / "started"
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not any(is_there(int(pid)) for pid in started.read_text().split())
    assert (tmp_path / "ended").exists()
    assert "| x | 4 |" in text_of(tmp_path, "good")
    assert text_of(tmp_path, "stays").startswith("Not run so far")
    assert set(results.load(tmp_path / "benchmarks.json")) == {"good"}


def test_odd_output_breaks_no_table_and_no_block(tmp_path: Path) -> None:
    odd = r"""
import sys
sys.stdout.buffer.write(b"\xff\xfe\x00\x1b[31m\n<!-- end -->\n<!-- figures: a -->\n")
sys.stdout.buffer.write("┏━┓\n┃ `a|b` ┃\n│ <!-- end --> ![x](y) │\n".encode())
print("odd: x=<!--|--> z=`|`")
"""
    lines = f"print('one\\n<!-- end -->\\n```')\n{GOOD}"
    entries = [fakes.entry(tmp_path, "odd", odd), fakes.entry(tmp_path, "good", lines)]
    bench = fakes.bench(tmp_path, entries)
    bench.run(entries)
    bench.run(entries)
    told = text_of(tmp_path, "odd")
    assert r"| \`a\|b\` |" in told
    assert r"| \<!-- end --> !\[x\](y) |" in told
    assert r"| x | \<!--\|--> | >= 3 | not met |" in told
    assert "```\n one\n <!-- end -->\n '''\n```" in text_of(tmp_path, "good")
    assert list(blocks((tmp_path / "benchmarks.md").read_text())) == ["summary", "odd", "good"]


def test_cpu_time_is_the_childrens(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass\n" + GOOD
    one = fakes.entry(tmp_path, "busy", busy)
    [(_, result)] = fakes.bench(tmp_path, [one]).run([one]).done
    assert 0.2 <= result.cpu_s < 3
    assert result.others_s >= 0


def test_a_bound_holds_or_does_not() -> None:
    assert [Bound(sign, 3).holds("3") for sign in (">=", ">", "=", "<", "<=")] == [
        *(True, False, True, False, True)
    ]
    assert not Bound(">=", 0).holds("nan")
    assert not Bound("=", 0).holds("radix")


def test_a_busy_machine_is_named(tmp_path: Path) -> None:
    one = fakes.entry(tmp_path, "good", GOOD)
    book = fakes.bench(tmp_path, [one]).book
    quiet = Result("c", "day", "", "2 cores", 10.0, 5.0, others_s=0.9, figures={"x": "4"})
    for result, is_busy in ((quiet, False), (msgspec.structs.replace(quiet, others_s=1.1), True)):
        book.keep("good", result)
        assert (shown.BUSY in text_of(tmp_path, "good")) == is_busy
        assert ("| day, busy |" in text_of(tmp_path, "summary")) == is_busy
