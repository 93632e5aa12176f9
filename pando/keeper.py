"""Keeps the workers of `pando up` alive: one that died is started again under its name.

died ──▶ a pause, longer after every quick death ──▶ started again
  └── after several quick deaths in a row: given up, and the others go on
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pando.children import Child, Children
from pando.errors import NoWorkerLeft, how_it_ended


@dataclass(frozen=True, slots=True)
class Patience:
    """quick_s: a life that is not so much longer than loading takes is a quick one.

    max_deaths: so many quick ones in a row are the last.
    pause_s: before the next start after the first quick death; it doubles with each further one.
    """

    quick_s: float = 60.0
    max_deaths: int = 5
    pause_s: float = 1.0


@dataclass(slots=True)
class Lives:
    """One worker's. child None: it is dead, and started again at due_at; None as well: never."""

    child: Child | None
    began_at: float
    num_quick: int = 0
    due_at: float | None = None


@dataclass(slots=True)
class Keeper:
    """Whoever runs the fleet calls `look` again and again. say: tells the user. clock: seconds."""

    children: Children
    say: Callable[[str], None]
    patience: Patience = Patience()
    clock: Callable[[], float] = time.monotonic
    _commands: dict[str, Sequence[str]] = field(default_factory=dict)
    _lives: dict[str, Lives] = field(default_factory=dict)
    _loading_s: float = 0.0

    def start(self, commands: Mapping[str, Sequence[str]]) -> None:
        """The workers of these names run."""
        for name, command in commands.items():
            self._commands[name] = command
            self._lives[name] = Lives(self.children.start(name, command), self.clock())

    def loaded(self) -> None:
        """All serve now, for the first time: so long it takes."""
        self._loading_s = self.clock() - min(lives.began_at for lives in self._lives.values())

    def look(self) -> None:
        """The dead are noticed, and those whose pause is over started again.

        Raises NoWorkerLeft once all are given up.
        """
        for name, lives in self._lives.items():
            if lives.child is not None and lives.child.process.poll() is not None:
                self._died(lives, lives.child)
            elif lives.due_at is not None and self.clock() >= lives.due_at:
                lives.child = self.children.start(name, self._commands[name])
                lives.began_at, lives.due_at = self.clock(), None

    def _died(self, lives: Lives, child: Child) -> None:
        """Say so, and when it starts again, if it does."""
        self.children.forget(child)
        lives.child = None
        is_quick = self.clock() - lives.began_at < self._loading_s + self.patience.quick_s
        lives.num_quick = lives.num_quick + 1 if is_quick else 0
        ended = how_it_ended(child.name, child.process.returncode)
        if lives.num_quick >= self.patience.max_deaths:
            self._give_up(child, f"{ended} soon after its start, {lives.num_quick} times in a row")
            return
        pause_s = self.patience.pause_s * 2 ** (lives.num_quick - 1) if is_quick else 0.0
        lives.due_at = self.clock() + pause_s
        when = f"in {pause_s:g} s" if pause_s else "now"
        self.say(f"{ended}; it is started again {when}. Its log is {child.log}.")

    def _give_up(self, child: Child, reason: str) -> None:
        if all(one.child is None and one.due_at is None for one in self._lives.values()):
            raise NoWorkerLeft(reason, child.last_lines())
        self.say(f"{reason}: it is not started again. Its log is {child.log}.")
