"""The gateway's log: one event per line with its fields, never prompt text.

2026-01-31T12:00:00.000Z info request_ended request_id=req-1 tenant=acme worker=w0 status=200

Or each as a JSON object (`log_format: json`), for programs that collect logs.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from typing import Literal

from process.lines import field, json_value, time_of
from process.outlet import Outlet

FieldValue = str | int | float | bool | None
LogFormat = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class _Line:
    """An event as a record carries it; its text is its line."""

    event: str
    fields: dict[str, FieldValue]

    def __str__(self) -> str:
        told = [f"{key}={field(value)}" for key, value in self.fields.items() if value is not None]
        return " ".join([self.event, *told])


class EventLog:
    """Writes one event per line; `bind` fixes fields once for all later lines.

    outlet: where its lines leave the process, if that is ours.
    """

    def __init__(
        self,
        logger: logging.Logger,
        fields: dict[str, FieldValue] | None = None,
        outlet: Outlet | None = None,
    ):
        self._logger = logger
        self._fields = fields or {}
        self._outlet = outlet

    @property
    def num_dropped(self) -> int:
        """Lines of this process that nobody took in time."""
        return self._outlet.num_dropped if self._outlet else 0

    def close(self) -> None:
        """What was logged is written, as far as anybody takes it in a moment."""
        if self._outlet is not None:
            self._outlet.close()

    def bind(self, **fields: FieldValue) -> EventLog:
        """A log whose every line carries the fields."""
        return EventLog(self._logger, {**self._fields, **fields}, self._outlet)

    def debug(self, event: str, **fields: FieldValue) -> None:
        """Of use while developing."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: FieldValue) -> None:
        """The normal course."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: FieldValue) -> None:
        """Somebody may have to look."""
        self._write(logging.WARNING, event, fields)

    def exception(self, event: str, **fields: FieldValue) -> None:
        """Our own fault; the traceback follows the line."""
        self._write(logging.ERROR, event, fields, with_traceback=True)

    def _write(
        self, level: int, event: str, fields: dict[str, FieldValue], with_traceback: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            line = _Line(event, self._fields | fields)
            self._logger.log(level, "%s", line, exc_info=with_traceback)


def set_up_logging(level: str, form: LogFormat = "text") -> EventLog:
    """Lines go to standard error, ours and the libraries' in one form; nobody waits for that.

    Where a line was written in the code is not looked for (logging's HOWTO, "Optimization"): that
    is most of what a line costs.
    """
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = Outlet(sys.stderr.fileno(), _lines_dropped)
    handler.setFormatter(FORMATTERS[form]())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logger = logging.getLogger("gateway")
    logger.setLevel(level.upper())
    return EventLog(logger, outlet=handler)


def _lines_dropped(num_lines: int) -> logging.LogRecord:
    """What the log says once it goes on."""
    line = _Line("log_lines_dropped", {"lines": num_lines})
    return logging.LogRecord("gateway", logging.WARNING, "", 0, "%s", (line,), None)


class _LineFormatter(logging.Formatter):
    """`time level event fields`; another library's message is the field of its logger's event."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{time_of(record)} {record.levelname.lower()}"
        message = record.getMessage()
        if record.name != "gateway":
            message = f"library_message logger={record.name} message={field(message)}"
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        return f"{head} {message}"


class _JsonFormatter(logging.Formatter):
    """One object per line: time, level and event, then the fields; a traceback is one of them."""

    def format(self, record: logging.LogRecord) -> str:
        line = record.args[0] if isinstance(record.args, tuple) and record.args else None
        told: dict[str, object] = {"time": time_of(record), "level": record.levelname.lower()}
        if isinstance(line, _Line):
            told["event"] = line.event
            for name, value in line.fields.items():
                if value is not None:
                    told[f"{name}_" if name in told else name] = json_value(value)
        else:
            told["event"] = "library_message"
            told["logger"], told["message"] = record.name, record.getMessage()
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told)


FORMATTERS: dict[LogFormat, type[logging.Formatter]] = {
    "text": _LineFormatter,
    "json": _JsonFormatter,
}
