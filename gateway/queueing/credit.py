"""Whether a worker takes one more: what it runs together, and a few that wait at its door.

Those few keep it busy between two of our messages; what waits beyond them can still be regrouped
and sent elsewhere.
"""

from __future__ import annotations

import math

from gateway.fleet.workers import Worker


def has_credit(worker: Worker, ahead: float) -> bool:
    """Whether it has fewer sequences than it runs together and `ahead` of that again.

    Others' sequences are what it reports beyond our own. A worker that does not say how many
    it runs takes any number.
    """
    runs = worker.info.max_running_sequences
    if not runs:
        return True
    load = worker.load
    others = max(0, load.running_sequences + load.waiting_sequences - worker.num_sequences)
    return worker.num_sequences + others < runs + math.ceil(runs * ahead)
