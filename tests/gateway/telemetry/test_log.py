"""The log's two forms: the same events, one per line."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import Any

import pytest

from gateway.config import ConfigError, load
from gateway.telemetry.log import FORMATTERS, EventLog, LogFormat


class Written:
    """What a log of one form wrote, by a logger that nobody else knows."""

    def __init__(self, form: LogFormat, name: str = "gateway"):
        self._stream = io.StringIO()
        handler = logging.StreamHandler(self._stream)
        handler.setFormatter(FORMATTERS[form]())
        self.logger = logging.Logger(name, logging.INFO)
        self.logger.addHandler(handler)
        self.log = EventLog(self.logger)

    @property
    def lines(self) -> list[str]:
        return self._stream.getvalue().splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def test_a_json_line_has_time_level_event_and_the_fields_as_they_are() -> None:
    written = Written("json")
    log = written.log.bind(request_id="req-1", tenant=None)
    log.warning("ended", status=200, seconds=1.23456789, ok=True, text='a "b"\nc = \ud800', n=None)
    log.info("odd", level="high", rate=float("nan"))
    first, second = written.objects
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "warning",
        "event": "ended",
        "request_id": "req-1",
        "status": 200,
        "seconds": 1.23457,
        "ok": True,
        "text": 'a "b"\nc = \ud800',
    }
    assert (second["level"], second["level_"], second["rate"]) == ("info", "high", "nan")


def test_both_forms_tell_the_same() -> None:
    text, as_json = Written("text"), Written("json")
    for written in (text, as_json):
        written.log.info("ended", worker="w 0", status=200)
    assert text.lines[0].split(" ", 1)[1] == 'info ended worker="w 0" status=200'
    (told,) = as_json.objects
    del told["time"]
    assert told == {"level": "info", "event": "ended", "worker": "w 0", "status": 200}


def test_a_traceback_and_a_librarys_message_are_fields_of_one_line() -> None:
    written, library = Written("json"), Written("json", "uvicorn.error")
    try:
        raise ValueError("so")
    except ValueError:
        written.log.exception("request_failed", request_id="req-1")
    (told,) = written.objects
    assert told["traceback"].endswith("ValueError: so")
    library.logger.warning("%s of %d", "two\nlines", 3)
    (told,) = library.objects
    assert told["event"] == "library_message"
    assert (told["logger"], told["message"]) == ("uvicorn.error", "two\nlines of 3")


def test_another_form_is_refused_with_those_that_are() -> None:
    assert load(None, {"log_format": "json"}).log_format == "json"
    with pytest.raises(ConfigError, match="log_format"):
        load(None, {"log_format": "xml"})
