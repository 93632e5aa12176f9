"""Whether a worker takes one more: what it runs together, and a few that wait at its door.

Those few keep it busy between two of our messages; what waits beyond them can still be regrouped
and sent elsewhere.
"""

from __future__ import annotations

import math

from gateway.fleet.workers import Worker


def has_credit(worker: Worker, ahead: float, num_sequences: int = 1) -> bool:
    """Whether so many more fit into what it runs together and `ahead` of that again.

    Others' sequences are what it reports beyond our own. A worker that does not say how many
    it runs takes any number; an idle one takes any request, however large.
    """
    runs = worker.info.max_running_sequences
    if not runs:
        return True
    load = worker.load
    others = max(0, load.running_sequences + load.waiting_sequences - worker.num_sequences)
    taken = worker.num_sequences + others
    waits = min(math.ceil(runs * ahead), worker.info.max_waiting_sequences)
    return not taken or taken + num_sequences <= runs + waits
