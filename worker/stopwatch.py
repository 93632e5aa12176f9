"""How long sequences wait and take, as the engine sees it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds, one entry per sequence to which it happened since the last report.

    queue_s: from its arrival to its first step. prefill_s: from there to its first token. ttft_s:
    from its arrival to that. tpot_s: for each token after the first, told at its end.
    """

    queue_s: list[float] = field(default_factory=list)
    prefill_s: list[float] = field(default_factory=list)
    ttft_s: list[float] = field(default_factory=list)
    tpot_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Life:
    came_s: float
    began_s: float | None = None
    first_s: float | None = None
    last_s: float = 0.0
    num_tokens: int = 0


class Stopwatch:
    """Used by the engine's thread only. now: seconds of the engine's clock."""

    def __init__(self) -> None:
        self._lives: dict[int, _Life] = {}
        self._taken = Durations()

    def __len__(self) -> int:
        """Sequences that have not ended."""
        return len(self._lives)

    def came(self, sequence_id: int, now: float) -> None:
        """A sequence is in the queue."""
        self._lives[sequence_id] = _Life(now)

    def planned(self, sequence_ids: Iterable[int], began: float) -> None:
        """These are part of the step that began then."""
        for sequence_id in sequence_ids:
            life = self._lives.get(sequence_id)
            if life is not None and life.began_s is None:
                life.began_s = began
                self._taken.queue_s.append(began - life.came_s)

    def token(self, sequence_id: int, now: float, *, is_last: bool, count: int = 1) -> None:
        """A sequence has so many new tokens; none where it only ends."""
        life = self._lives.get(sequence_id)
        if life is None:
            return
        if count and life.first_s is None:
            life.first_s = now
            self._taken.ttft_s.append(now - life.came_s)
            if life.began_s is not None:  # a grammar may force a token before any step
                self._taken.prefill_s.append(now - life.began_s)
        if count:
            life.last_s = now
        life.num_tokens += count
        if is_last:
            self.gone(sequence_id)

    def gone(self, sequence_id: int) -> None:
        """A sequence has ended, in whatever way."""
        life = self._lives.pop(sequence_id, None)
        if life is not None and life.first_s is not None and life.num_tokens > 1:
            self._taken.tpot_s.append((life.last_s - life.first_s) / (life.num_tokens - 1))

    def take(self) -> Durations:
        """What has gathered since the last call."""
        taken, self._taken = self._taken, Durations()
        return taken
