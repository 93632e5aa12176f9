"""The other ranks' processes, as rank 0 sees them: started, told each plan, watched, ended.

Ranks compute in step, so one that fails or hangs leaves the others waiting for its part of a sum.
Therefore nothing is mended: any loss ends the worker, and gateways go on elsewhere. A watch in a
thread of its own sees processes that ended and steps that take too long; it kills the ranks that
are left, which frees rank 0 from waiting for them, and sees to it that the process itself ends.
The other way round a rank ends with its pipe, and so with rank 0.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from process.outlet import last_words
from worker.errors import RankLost
from worker.parallel.frames import Assignment, bare, pack
from worker.step import StepPlan

log = logging.getLogger("pando.worker.parallel")

PROGRAM = (sys.executable, "-m", "worker.parallel")
ROOT = Path(__file__).parents[2]
POLL_S = 0.1
SETTLE_S = 2.0  # between a failed sum and the end of the process whose fault it was


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds before force is used. step_s: for a step; far above any, it ends what would not.

    grace_s: for this process to end in order once a rank is lost. leave_s: for a rank to end by
    itself once its pipe is closed.
    """

    step_s: float = 300.0
    grace_s: float = 10.0
    leave_s: float = 10.0


class Ranks:
    """Ranks 1, 2, ... of a worker. `step` is the engine thread's, the rest the main thread's.

    on_loss: called once, in the watch's thread, when a rank is lost; `loss` is the sentence then.
    """

    def __init__(
        self,
        assignments: Sequence[Assignment],
        program: Sequence[str] = PROGRAM,
        patience: Patience = Patience(),
        end_process: Callable[[int], object] = os._exit,
    ) -> None:
        self.loss: str | None = None
        self.on_loss: Callable[[], object] = _nothing
        self._patience = patience
        self._end_process = end_process
        self._step_since: float | None = None
        self._lost, self._leaving, self._closed = (threading.Event() for _ in range(3))
        self._lock = threading.Lock()
        self._processes = [
            subprocess.Popen(list(program), stdin=subprocess.PIPE, cwd=ROOT) for _ in assignments
        ]
        self._watcher = threading.Thread(target=self._watch, name="ranks", daemon=True)
        self._watcher.start()
        for assignment, process in zip(assignments, self._processes, strict=True):
            log.info("rank_started", extra={"rank": assignment.rank, "pid": process.pid})
            with suppress(OSError):  # one that has ended already is the watch's
                _write(process, pack(assignment))

    @contextmanager
    def step(self, plan: StepPlan) -> Iterator[None]:
        """Has all ranks begin the plan; within, rank 0 computes it as well.

        Raises RankLost whatever goes wrong within: the ranks would no longer be in step.
        """
        self._step_since = time.monotonic()
        try:
            frame = pack(bare(plan))
            for process in self._processes:
                _write(process, frame)
            yield
        except Exception as error:
            raise self.blame(error) from error
        finally:
            self._step_since = None

    @contextmanager
    def loading(self) -> Iterator[None]:
        """What torch raises within, while all ranks load, is raised as RankLost."""
        try:
            yield
        except RuntimeError as error:
            raise self.blame(error) from error

    def blame(self, error: Exception) -> RankLost:
        """Returns what to raise after an error that may be the sign of a lost rank."""
        if not self._lost.wait(SETTLE_S):
            self._lose(f"Rank 0 failed in what all ranks do together ({error}).")
        return RankLost(self.loss or "")

    def dismiss(self) -> None:
        """Lets the ranks end: there will be no more plans."""
        self._leaving.set()
        for process in self._processes:
            with suppress(OSError):
                _pipe(process).close()

    def close(self) -> None:
        """Returns when no process is left and the watch is over."""
        self.dismiss()
        until = time.monotonic() + self._patience.leave_s
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0))
        self._kill()
        self._closed.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._lost.wait(POLL_S):
            if self._leaving.is_set():
                return
            if trouble := self._trouble():
                self._lose(trouble)
        log.critical("rank_lost", extra={"reason": self.loss})
        self._kill()
        self.on_loss()
        if not self._closed.wait(self._patience.grace_s):
            last_words(f"worker: {RankLost(self.loss or '')}")
            self._end_process(1)

    def _trouble(self) -> str | None:
        for rank, process in enumerate(self._processes, start=1):
            status = process.poll()
            if status is not None:
                how = f"by signal {-status}" if status < 0 else f"with status {status}"
                return f"Rank {rank} of the model ended {how}."
        since = self._step_since
        if since is not None and time.monotonic() - since > self._patience.step_s:
            return f"The ranks did not compute a step within {self._patience.step_s:g} s."
        return None

    def _lose(self, sentence: str) -> None:
        with self._lock:
            self.loss = self.loss or sentence
        self._lost.set()

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def _pipe(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None
    return process.stdin


def _write(process: subprocess.Popen[bytes], frame: bytes) -> None:
    pipe = _pipe(process)
    pipe.write(frame)
    pipe.flush()


def _nothing() -> None:
    """Nobody wants to know."""
