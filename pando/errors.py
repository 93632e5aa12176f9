"""What can go wrong in the `pando` command, and what a user reads then.

PandoError              a sentence; the command ends with status 1
├── StartFailed         part of the fleet didn't come up
├── ChildDied           part of the fleet ended by itself
├── NoWorkerLeft        no worker of the fleet can be kept alive
└── BadSize             text that names no amount of memory
"""

from __future__ import annotations


class PandoError(Exception):
    """A sentence for the user."""


class StartFailed(PandoError):
    """Part of the fleet didn't come up."""


class BadSize(PandoError):
    """Text that names no amount of memory."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is no size: write a number with KiB, MiB, GiB or bytes alone.")


class ChildDied(PandoError):
    """A process of the fleet ended by itself; the end of its log follows the sentence."""

    def __init__(self, name: str, status: int, last_lines: str) -> None:
        super().__init__(f"{how_it_ended(name, status)}. {_end_of_log(last_lines)}")


class NoWorkerLeft(PandoError):
    """No worker of the fleet can be kept alive; reason: how the last one ended."""

    def __init__(self, reason: str, last_lines: str) -> None:
        super().__init__(f"No worker can be kept alive: {reason}. {_end_of_log(last_lines)}")


def how_it_ended(name: str, status: int) -> str:
    """Returns a clause about a process. status: as of `Popen.returncode`."""
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"{name} {how}"


def _end_of_log(last_lines: str) -> str:
    return f"The end of its log:\n{last_lines or '(it is empty)'}"
