"""The way out for log lines: whoever logs waits for nobody."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

import pytest

from process.outlet import Outlet, last_words
from tests.process.pipes import ROOM, Pipe, in_background, opened


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    with opened() as pipe:
        yield pipe


def dropped(num_lines: int) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": f"dropped={num_lines}"})


def log_to(outlet: logging.Handler) -> Callable[[str], None]:
    logger = logging.Logger("apart")
    logger.addHandler(outlet)
    return logger.warning


def test_lines_that_nobody_reads_are_dropped_counted_and_told(pipe: Pipe) -> None:
    outlet = Outlet(os.dup(pipe.write_end), dropped, max_bytes=10_000)
    log = log_to(outlet)
    for number in range(1000):
        log(f"line {number:0100}")
    assert outlet.num_dropped > 800
    result = in_background(pipe.read)
    while outlet._num_bytes:
        pass
    log("the last")
    outlet.close()
    os.close(outlet._descriptor)
    lines = result().splitlines()
    told = [int(line.removeprefix("dropped=")) for line in lines if line.startswith("dropped=")]
    kept = [int(line.removeprefix("line ")) for line in lines if line.startswith("line ")]
    assert sum(told) == outlet.num_dropped == 1000 - len(kept)
    assert kept == list(range(len(kept)))
    assert lines[-1] == "the last"


def test_what_is_queued_at_the_end_is_written(pipe: Pipe) -> None:
    outlet = Outlet(os.dup(pipe.write_end), dropped)
    os.set_blocking(outlet._descriptor, False)
    log = log_to(outlet)
    for number in range(500):
        log(f"line {number:0100}")
    result = in_background(pipe.read)
    outlet.close()
    os.close(outlet._descriptor)
    assert len(result().splitlines()) == 500
    assert outlet.num_dropped == 0


def test_the_end_waits_for_a_reader_for_a_moment_only(pipe: Pipe) -> None:
    outlet = Outlet(pipe.write_end, dropped, farewell_s=0.01)
    log = log_to(outlet)
    for number in range(100):
        log(f"line {number:0100}")
    outlet.close()
    assert outlet._writer.is_alive()
    pipe.close_reader()
    outlet._writer.join()


def test_a_reader_that_is_gone_ends_nothing(pipe: Pipe) -> None:
    pipe.close_reader()
    outlet = Outlet(pipe.write_end, dropped)
    log = log_to(outlet)
    log("one")
    outlet.close()
    assert outlet.num_dropped == 1


def test_a_line_that_cannot_be_made_is_counted_and_told_to_nobody(
    pipe: Pipe, capsys: pytest.CaptureFixture[str]
) -> None:
    outlet = Outlet(os.dup(pipe.write_end), dropped)
    logger = logging.Logger("apart")
    logger.addHandler(outlet)
    logger.warning("%d", "the launch code")
    logger.warning("the next")
    outlet.close()
    os.close(outlet._descriptor)
    assert pipe.read() == "the next\ndropped=1\n"
    assert outlet.num_dropped == 1
    assert not capsys.readouterr().err


def test_last_words_wait_for_nobody(pipe: Pipe) -> None:
    last_words("worker: it broke", pipe.write_end)
    os.write(pipe.write_end, b"." * (ROOM - len("worker: it broke\n")))
    last_words("never written", pipe.write_end)
    told = pipe.read()
    assert told.startswith("worker: it broke\n.")
    assert told.endswith(".")


def test_last_words_to_a_reader_that_is_gone_are_no_error(pipe: Pipe) -> None:
    pipe.close_reader()
    last_words("worker: it broke", pipe.write_end)
