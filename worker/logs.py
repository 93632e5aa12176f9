"""A worker's log: one event per line with its fields, never prompt text.

What libraries warn of goes the same way: else Python writes it to `sys.stderr`, and waits for that.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from process.lines import field, json_value, time_of
from process.outlet import Outlet

# What every record has beside an event's own fields.
_STANDARD = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class FieldFormatter(logging.Formatter):
    """One event per line: time, level, event, fields as key=value; as the gateway's.

    2026-01-31T12:00:00.000Z info ready worker=worker-0 port=7001
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line, with a traceback behind it where there is one."""
        head = f"{time_of(record)} {record.levelname.lower()}"
        event, told = _event(record)
        fields = "".join(f" {name}={field(value)}" for name, value in told.items())
        line = f"{head} {event}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One object per line: time, level and event, then the fields; a traceback is one of them."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        told: dict[str, Any] = {"time": time_of(record), "level": record.levelname.lower()}
        told["event"], fields = _event(record)
        for name, value in fields.items():
            told[f"{name}_" if name in told else name] = json_value(value)
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told)


FORMATTERS = {"text": FieldFormatter, "json": JsonFormatter}


def _event(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """The event and its fields; another library's message is a field of one of ours."""
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if record.name.partition(".")[0] == "pando":
        return record.getMessage(), fields
    message = {"logger": record.name, "message": record.getMessage()}
    return "library_message", message | fields


def set_up_logging(level: str, form: str = "text") -> Outlet:
    """Our events, and warnings of libraries, go to stderr; nobody waits. form: of FORMATTERS."""
    handler = Outlet(sys.stderr.fileno(), _lines_dropped)
    handler.setFormatter(FORMATTERS[form]())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("pando").setLevel(level.upper())
    return handler


def _lines_dropped(num_lines: int) -> logging.LogRecord:
    """What the log says once it goes on."""
    told = {"name": "pando.worker", "levelname": "WARNING", "levelno": logging.WARNING}
    return logging.makeLogRecord({**told, "msg": "log_lines_dropped", "lines": num_lines})
