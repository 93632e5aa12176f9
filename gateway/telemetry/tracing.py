"""OpenTelemetry: a request's life as spans, told once it is over; off without an endpoint.

    gateway.request          from acceptance to the end; below a client's span (traceparent)
    ├── gateway.queue        until it went to a worker
    ├── gateway.worker       with one worker. Event: first_output
    │   ├── worker.prepare   as the worker tells with the request's end: template, tokens, grammar
    │   ├── worker.wait      for its turn and its pages
    │   ├── worker.prefill   to the first token
    │   └── worker.decode    to the end
    └── ...                  another queue and worker behind a retry

While a request runs, only ids are made: times are those that its life has anyway. No text of a
prompt is in a span. The packages of the extra `otel` are imported by `exporting` alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gateway.telemetry.lives import Life


@dataclass(frozen=True, slots=True)
class Trace:
    """A sampled request's place. span_id: of gateway.request; parent: the context around it.

    make_id: for one more span.
    """

    trace_id: int
    span_id: int
    parent: object
    make_id: Callable[[], int]

    @property
    def name(self) -> str:
        """As logs and collectors write it."""
        return f"{self.trace_id:032x}"

    def header(self, span_id: int) -> str:
        """The `traceparent` (W3C) for what is done below one of its spans."""
        return f"00-{self.name}-{span_id:016x}-01"


class Traces(Protocol):
    """Where lives become spans."""

    @property
    def is_on(self) -> bool:
        """Whether a request's traceparent is worth a look."""
        ...

    def begin(self, traceparent: str | None, /) -> Trace | None:
        """A request begins, under a client's span; None where it is not sampled."""
        ...

    def tell(self, life: Life, trace: Trace, /) -> None:
        """The life is on its way out."""
        ...

    def close(self) -> None:
        """What was told is sent, or given up after seconds. Blocks."""
        ...


class NoTraces:
    """Tracing that is off."""

    is_on = False

    def begin(self, _: str | None) -> Trace | None:
        """As Traces: nothing."""
        return None

    def tell(self, _: Life, __: Trace) -> None:
        """As Traces: nothing."""

    def close(self) -> None:
        """As Traces: nothing."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """clock: telemetry's. wall_clock: seconds since 1970."""

    clock: Callable[[], float]
    wall_clock: Callable[[], float] = time.time
