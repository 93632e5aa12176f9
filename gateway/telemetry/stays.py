"""A life as stays with its workers: when each had it, by the gateway's clock, and what it did then.

    sent                                                        over
     ├──── link ────┬─ prepare ─┬─ wait ─┬─ prefill ─┬─ decode ─┬ link ┤      gateway's clock
                    0                                        ended_s          worker's clock

Two machines' clocks never meet. A worker's durations lie in the middle of where they can: behind
the sending, before the end, and its first token before the gateway had that.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from gateway.telemetry.lives import Life, Sent
from gateway.timing import Phase, Timing


class Stay(Struct, frozen=True, gc=False):
    """With one worker. Times are seconds of telemetry's clock; phases: within it, if it told any.

    waited_from: when it began to wait for that worker.
    """

    worker: str
    span_id: int
    waited_from: float
    began: float
    ended: float
    phases: tuple[Phase, ...] = ()
    num_preemptions: int = 0


def stays(life: Life) -> list[Stay]:
    """One for each worker that it was sent to, in that order."""
    found: list[Stay] = []
    waited_from = life.began
    for sent, following in pairwise((*life.sent, None)):
        assert sent is not None
        last = life.ended if following is None else following.at
        ended = last if sent.over is None else sent.over
        stay = Stay(sent.worker, sent.span_id, waited_from, sent.at, ended)
        if sent.timing is not None:
            phases = _placed(life, sent, sent.timing, ended)
            stay = replace(stay, phases=phases, num_preemptions=sent.timing.num_preemptions)
        found.append(stay)
        waited_from = ended
    return found


def _placed(life: Life, sent: Sent, timing: Timing, ended: float) -> tuple[Phase, ...]:
    """The worker's phases on the gateway's clock; what its clock has too much is cut off."""
    latest = ended - timing.ended_s
    output = life.first_output
    # Of several prompts, the first output may be another one's.
    tells = life.num_parts == 1 and timing.first_token_s is not None
    if tells and output is not None and sent.at <= output <= ended:
        latest = min(latest, output - (timing.first_token_s or 0.0))
    zero = sent.at + max(0.0, latest - sent.at) / 2
    return tuple(
        Phase(one.name, min(zero + one.began, ended), min(zero + one.ended, ended))
        for one in timing.phases()
    )
