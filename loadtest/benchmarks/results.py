"""What each benchmark gave last, in a file beside the document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from loadtest.errors import BadDocument

# Of a run's seconds, as many of one core may go to other processes.
QUIET_SHARE = 0.1


class Result(msgspec.Struct, frozen=True):
    """failure: a sentence's end, empty where there was none; then there are figures.

    command: as somebody types it. others_s: CPU seconds of all other processes meanwhile.
    """

    command: str
    date: str
    commit: str
    machine: str
    seconds: float
    cpu_s: float
    others_s: float
    failure: str = ""
    figures: dict[str, str] = {}
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    text: tuple[str, ...] = ()

    @property
    def is_quiet(self) -> bool:
        """Whether others took little of the machine meanwhile: not a tenth of one core."""
        return self.others_s <= QUIET_SHARE * self.seconds


Results = Mapping[str, Result]


def load(path: Path) -> dict[str, Result]:
    """Returns the results by name; none where there is no file yet. Raises BadDocument."""
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Result])
    except msgspec.DecodeError as error:
        raise BadDocument(f"{path.name}: {error}") from error


def save(results: Results, path: Path) -> None:
    """The file has these results, and was never half of them."""
    told = msgspec.json.format(msgspec.json.encode(dict(sorted(results.items()))), indent=1)
    write(path, told.decode() + "\n")


def write(path: Path, text: str) -> None:
    """The file has this text; whoever looks meanwhile finds the old one or the new one."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, "utf-8")
    draft.replace(path)
