"""What can go wrong in the `pando` command and in programs, and what a user reads then.

PandoError              a sentence; the command ends with status 1
├── StartFailed         part of the fleet didn't come up
├── ChildDied           part of the fleet ended by itself
├── NoWorkerLeft        no worker of the fleet can be kept alive
├── BadSize             text that names no amount of memory
├── BadPrefixes         a file that declares no prefixes
├── WarmFailed          a prefix could not be asked for
└── ProgramError        a program failed: status, code and param as the gateway told them
    ├── BadProgram      a wrong argument or step; also a ValueError
    ├── UnknownName     a value is read that was never set; also a KeyError
    ├── SessionLost     what a session kept is gone; the library goes on without it
    ├── Stopped         whoever ran the program gave it up
    └── BatchError      some of many runs failed; the others' results are in it
"""

from __future__ import annotations

from collections.abc import Sequence


class PandoError(Exception):
    """A sentence for the user."""


class StartFailed(PandoError):
    """Part of the fleet didn't come up."""


class BadSize(PandoError):
    """Text that names no amount of memory."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is no size: write a number with KiB, MiB, GiB or bytes alone.")


class BadPrefixes(PandoError):
    """The file can't be read, or declares no prefixes."""


class WarmFailed(PandoError):
    """The gateway can't be asked, or refused a prefix."""


class ChildDied(PandoError):
    """A process of the fleet ended by itself; the end of its log follows the sentence."""

    def __init__(self, name: str, status: int, last_lines: str) -> None:
        super().__init__(f"{how_it_ended(name, status)}. {_end_of_log(last_lines)}")


class NoWorkerLeft(PandoError):
    """No worker of the fleet can be kept alive; reason: how the last one ended."""

    def __init__(self, reason: str, last_lines: str) -> None:
        super().__init__(f"No worker can be kept alive: {reason}. {_end_of_log(last_lines)}")


class ProgramError(PandoError):
    """A program failed. status: of HTTP, if it came so far; code and param: the gateway's."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param

    def __str__(self) -> str:
        return self.message


class BadProgram(ProgramError, ValueError):
    """A wrong argument or step; the sentence ends with the line of the user's program."""


class UnknownName(ProgramError, KeyError):
    """A value is read that was never set; the sentence lists those that were."""


class SessionLost(ProgramError):
    """What a session kept is gone."""


class Stopped(ProgramError):
    """Whoever ran the program gave it up."""

    def __init__(self) -> None:
        super().__init__("The run was given up.", code="stopped")


class BatchError(ProgramError):
    """Some of many runs failed. outcomes: a result or an exception for each, in order."""

    def __init__(self, outcomes: Sequence[object]) -> None:
        failed = [(i, one) for i, one in enumerate(outcomes) if isinstance(one, Exception)]
        number, first = failed[0]
        super().__init__(
            f"{len(failed)} of {len(outcomes)} runs failed; number {number} was the first: {first}"
        )
        self.outcomes = outcomes


def how_it_ended(name: str, status: int) -> str:
    """Returns a clause about a process. status: as of `Popen.returncode`."""
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"{name} {how}"


def _end_of_log(last_lines: str) -> str:
    return f"The end of its log:\n{last_lines or '(it is empty)'}"
