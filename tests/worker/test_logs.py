"""A worker's log: one event per line, whoever tells it."""

from __future__ import annotations

import json
import logging
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from worker.logs import FieldFormatter, JsonFormatter

ROOT = Path(__file__).parents[2]


def test_a_log_line_is_one_event_with_its_fields() -> None:
    record = logging.LogRecord("pando.worker", logging.INFO, "", 0, "ready", (), None)
    record.worker, record.port = "w0", 7
    record.created, record.msecs = 1769860800.25, 250.0
    line = FieldFormatter().format(record)
    assert re.fullmatch(r"2026-01-31T12:00:00\.250Z info ready worker=w0 port=7", line), line


def test_a_json_line_is_one_object_and_no_field_hides_another() -> None:
    record = logging.LogRecord("pando.worker", logging.INFO, "", 0, "ready", (), None)
    record.worker, record.port, record.share = "w\n0", 7, math.inf
    record.level, record.pages, record.folder = "high", 0.5, Path("/x")
    record.created, record.msecs = 1769860800.25, 250.0
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-01-31T12:00:00.250Z",
        "level": "info",
        "event": "ready",
        "worker": "w\n0",
        "port": 7,
        "share": "inf",
        "level_": "high",
        "pages": 0.5,
        "folder": "/x",
    }


def test_a_traceback_stays_in_its_json_line() -> None:
    try:
        raise ValueError("so")
    except ValueError:
        record = logging.LogRecord("pando", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["traceback"].endswith("ValueError: so")


_A_LIBRARY_WARNS = """
import logging, sys
from worker.logs import set_up_logging

set_up_logging("error", sys.argv[1])
logging.getLogger("asyncio").warning("two\\nlines of %s", "a task")
logging.getLogger("asyncio").info("nothing to look at")
logging.getLogger("pando.worker").warning("less than an error")
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_library_warns_of_is_an_event(form: str) -> None:
    program = [sys.executable, "-c", _A_LIBRARY_WARNS, form]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    if form == "json":
        told = json.loads(line)
        del told["time"]
        event = {"level": "warning", "event": "library_message", "logger": "asyncio"}
        assert told == {**event, "message": "two\nlines of a task"}
    else:
        said = r'logger=asyncio message="two\nlines of a task"'
        assert line.split(" ", 1)[1] == f"warning library_message {said}"
