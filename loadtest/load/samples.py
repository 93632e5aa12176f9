"""Raw samples: one line for each request, in a file that begins with a line on the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from loadtest.errors import LoadTestError


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one request. Times in seconds.

    side: of a comparison. at_s: when it was sent, from the beginning of its round; late_s: how far
    behind its time. ttft_s: to the first token that was seen. gaps_s: between events with output,
    in order. end_s: to the end of the answer. status: HTTP's; 0: none came. units, shared_units: of
    the prompt's text, and what of it an unlimited cache would have held. None: not told.
    """

    side: str = "A"
    round: int = 0
    conversation: str
    turn: int = 0
    tenant: str = ""
    at_s: float
    late_s: float = 0.0
    ttft_s: float | None = None
    gaps_s: tuple[float, ...] = ()
    end_s: float
    status: int
    error: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    worker: str = ""
    units: int = 0
    shared_units: int = 0

    @property
    def is_good(self) -> bool:
        """Whether the answer came whole."""
        return self.status == 200 and not self.error

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first one."""
        if self.completion_tokens is None or self.completion_tokens < 2 or not self.gaps_s:
            return None
        return sum(self.gaps_s) / (self.completion_tokens - 1)


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A run's own line. settings: as given, keys left out. targets: URLs by side."""

    workload: str
    seed: int
    settings: dict[str, str]
    targets: dict[str, str]
    # Of `Sample`, to which this line's file belongs.
    version: int = 1


def write(path: Path, head: Head, samples: Iterable[Sample]) -> None:
    """The file holds the run's line and a line for each sample."""
    encoder = msgspec.json.Encoder()
    lines = [encoder.encode(one) for one in (head, *samples)]
    path.write_bytes(b"\n".join(lines) + b"\n")


class Recording(msgspec.Struct, frozen=True):
    """What a file of samples holds."""

    head: Head
    samples: tuple[Sample, ...]


def read(path: Path) -> Recording:
    """Returns what `write` wrote. Raises LoadTestError."""
    try:
        first, *rest = path.read_bytes().splitlines()
        decoder = msgspec.json.Decoder(Sample)
        head = msgspec.json.decode(first, type=Head)
        return Recording(head, tuple(decoder.decode(line) for line in rest))
    except (OSError, ValueError) as error:
        raise LoadTestError(f"{path}: no samples of a load test: {error}") from error


def by_side(samples: Iterable[Sample]) -> Mapping[str, list[Sample]]:
    """Returns the samples of each side, sides in order of their names."""
    found: dict[str, list[Sample]] = {}
    for sample in sorted(samples, key=lambda one: one.side):
        found.setdefault(sample.side, []).append(sample)
    return found
