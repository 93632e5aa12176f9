"""Faults of what a request's time went to: marks of the worker, and where the gateway puts them."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

MARKS = "tests/worker/test_timing.py"
SPANS = "tests/gateway/telemetry/test_tracing.py"

timing = Room("worker/timing.py", (MARKS,))
wire = Room("worker/wire.py", (MARKS,))
engine = Room("worker/engine.py", (MARKS,))
told = Room("gateway/timing.py", (SPANS,))
stays = Room("gateway/telemetry/stays.py", (SPANS,))
spans = Room("gateway/telemetry/spans.py", (SPANS,))
part = Room("gateway/part.py", (SPANS,))

FAULTS: tuple[Fault, ...] = (
    timing.fault(
        "times: each token is the first",
        "A prefill lasts until the answer's end.",
        "        if self._first_token is None:\n",
        "        if now:\n",
    ),
    wire.fault(
        "times: what took nothing did not happen",
        "A request that was admitted at once seems never to have been.",
        "return None if seconds is None else int(seconds * _US)",
        "return int(seconds * _US) if seconds else None",
    ),
    engine.fault(
        "times: a wait ends with the step",
        "The first chunk of a prefill counts as waiting.",
        "                began=started,\n",
        "                began=ended,\n",
    ),
    told.fault(
        "times: a worker's word is believed",
        "A worker whose marks go backwards makes spans that end before they begin.",
        "ended = self.ended_s if mark is None else min(max(mark, began), self.ended_s)",
        "ended = self.ended_s if mark is None else mark",
    ),
    stays.fault(
        "times: a worker's clock is followed beyond the stay",
        "Spans lie outside their parent.",
        "min(zero + one.ended, ended)",
        "zero + one.ended",
    ),
    stays.fault(
        "times: a wait for the second worker begins with the request",
        "A retry seems to have waited all the time.",
        "        waited_from = ended\n",
        "",
    ),
    spans.fault(
        "times: a span has an id of its own",
        "A server's spans hang below one that nobody told.",
        "        self._ids.give(stay.span_id)\n",
        "",
    ),
    part.fault(
        "times: the end at a worker is not noted",
        "Nobody knows what a request's time went to there.",
        "        self._over(done.timing)\n",
        "",
    ),
)
