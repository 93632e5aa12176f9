"""How a log line tells times and values, as text and as JSON."""

from __future__ import annotations

import json
import logging
import math
import re
import time

# Printable ASCII without the space and the quote: stands in a line as it is.
_PLAIN = re.compile(r"[!#-~]+")


def time_of(record: logging.LogRecord) -> str:
    """When it was, in UTC as ISO 8601 has it, with milliseconds."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def field(value: object) -> str:
    """A value without spaces as it is, any other as a JSON string: one event stays one line."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def json_value(value: object) -> object:
    """A value as JSON has it: six digits of a fraction; what is no number or truth, as text."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, int) else str(value)
