"""Where a request's time went in its worker, as the worker tells it with the request's end."""

from __future__ import annotations

from msgspec import Struct


class Phase(Struct, frozen=True, gc=False):
    """A part of a request's time. began, ended: seconds; since when says whoever has it."""

    name: str
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


class Timing(Struct, frozen=True, gc=False):
    """Seconds of the worker's own clock since the request came there.

    None: it did not come so far. What a worker says here is believed as far as it goes forward.
    num_preemptions: how often it gave pages back there, to wait and be computed again.
    """

    ended_s: float
    prepared_s: float | None = None
    admitted_s: float | None = None
    first_token_s: float | None = None
    num_preemptions: int = 0

    def phases(self) -> list[Phase]:
        """One behind the other, without a gap, from 0 to `ended_s`; the last one may be cut short.

        prepare: template, tokens, grammar. wait: for its turn and its pages. prefill: to the first
        token. decode: the rest.
        """
        marks = (
            ("prepare", self.prepared_s),
            ("wait", self.admitted_s),
            ("prefill", self.first_token_s),
            ("decode", None),
        )
        phases: list[Phase] = []
        began = 0.0
        for name, mark in marks:
            ended = self.ended_s if mark is None else min(max(mark, began), self.ended_s)
            phases.append(Phase(name, began, ended))
            began = ended
            if mark is None:
                break
        return phases
