"""Recorded traffic: when requests came, what each shares with others, how long the answers were.

Content is known by ids only. A request is a row of pieces, each with an id that stands for all up
to its end and with the tokens up to there; two requests share exactly the pieces of equal ids.

    mooncake   a piece per 512 tokens; the recorded times are whole 3 s, and are spread inside them
    agents     sessions of a coding agent; a piece ends where any request of the session ends or
               parts from another one, as messages do
"""

from __future__ import annotations

import gzip
import json
import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any

MOONCAKE_TOKENS = 512
# Longer pauses of an agent's user are cut to this, so that sessions overlap as on a busy fleet.
MAX_PAUSE_S = 60.0
# A new session begins every so often, on average.
SESSION_EVERY_S = 16.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt. key: names it and all before it. num_tokens: up to its end."""

    key: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request of a trace; at_s: from the trace's beginning."""

    at_s: float
    pieces: tuple[Piece, ...]
    output_tokens: int

    @property
    def prompt_tokens(self) -> int:
        """Of the whole prompt."""
        return self.pieces[-1].num_tokens


def mooncake(path: Path, limit: int | None = None) -> list[Recorded]:
    """A Mooncake trace, or its first requests."""
    rows = [json.loads(line) for line in _lines(path, limit)]
    return _spread([_of_row(row) for row in rows])


def agents(path: Path, limit: int | None = None, seed: int = 0) -> list[Recorded]:
    """Agents' sessions, or the first ones, begun at random, one every SESSION_EVERY_S."""
    rng = random.Random(seed)
    sessions = [json.loads(line) for line in _lines(path, limit)]
    requests: list[Recorded] = []
    for session in sessions:
        start = rng.uniform(0, len(sessions) * SESSION_EVERY_S)
        requests += _of_session(session, start)
    return sorted(requests, key=lambda request: request.at_s)


def _lines(path: Path, limit: int | None) -> Iterator[str]:
    with gzip.open(path, "rt") as file:
        for number, line in enumerate(file):
            if limit is not None and number >= limit:
                return
            yield line


def _of_row(row: dict[str, Any]) -> Recorded:
    ids, total = row["hash_ids"], row["input_length"]
    pieces = [
        Piece(str(one), min((number + 1) * MOONCAKE_TOKENS, total))
        for number, one in enumerate(ids)
    ]
    return Recorded(row["timestamp"] / 1000, tuple(pieces), row["output_length"])


def _spread(requests: Sequence[Recorded]) -> list[Recorded]:
    """Requests of one recorded instant, evenly up to the next instant."""
    groups = [list(group) for _, group in groupby(requests, key=lambda one: one.at_s)]
    spread: list[Recorded] = []
    for number, group in enumerate(groups):
        begins = group[0].at_s
        ends = groups[number + 1][0].at_s if number + 1 < len(groups) else begins
        step = (ends - begins) / len(group)
        spread += [replace(one, at_s=begins + k * step) for k, one in enumerate(group)]
    return spread


# A run of ids, as the sessions are coded: start, start + 1, ... so many of them.
Run = tuple[int, int]


def _of_session(session: dict[str, Any], start: float) -> list[Recorded]:
    rows = session["requests"]
    runs = [list(zip(row[9][::2], row[9][1::2], strict=True)) for row in rows]
    cuts = sorted(_cuts(session["block"], rows, runs))
    pauses = (max(row[0] - before[0], 0.0) for before, row in pairwise(rows))
    times = accumulate((min(pause, MAX_PAUSE_S) for pause in pauses), initial=start)
    return [
        Recorded(at, _pieces(session, run, cuts, row[1]), row[2])
        for at, row, run in zip(times, rows, runs, strict=True)
    ]


def _cuts(block: int, rows: Sequence[Sequence[Any]], runs: Sequence[Sequence[Run]]) -> set[int]:
    """The ids behind which a message ends: a request's end, its static part, where it forks."""
    cuts = set()
    for number, (row, run) in enumerate(zip(rows, runs, strict=True)):
        length = sum(count for _, count in run)
        places = {length, min((row[5] + row[6]) // block, length)}
        places |= {_common(run, other) for other in runs[max(0, number - 6) : number]}
        cuts |= {_id_at(run, place) for place in places if place}
    return cuts


def _common(first: Sequence[Run], second: Sequence[Run]) -> int:
    """How many blocks two requests share from the start."""
    shared = 0
    for (start, count), (other, other_count) in zip(first, second, strict=False):
        if start != other:
            break
        shared += min(count, other_count)
        if count != other_count:
            break
    return shared


def _id_at(runs: Sequence[Run], place: int) -> int:
    """The id of the block that is the place's last one; place counts from 1."""
    for start, count in runs:
        if place <= count:
            return start + place - 1
        place -= count
    raise ValueError("the place lies behind the end")


def _pieces(
    session: dict[str, Any], runs: Sequence[Run], cuts: Sequence[int], prompt_tokens: int
) -> tuple[Piece, ...]:
    block, before = session["block"], 0
    pieces: list[Piece] = []
    for start, count in runs:
        ends = cuts[bisect_left(cuts, start) : bisect_left(cuts, start + count)]
        pieces += [
            Piece(f"{session['id']}-{end}", (before + end - start + 1) * block) for end in ends
        ]
        before += count
    floor = pieces[-2].num_tokens + 1 if len(pieces) > 1 else 1
    pieces[-1] = replace(pieces[-1], num_tokens=max(min(prompt_tokens, before * block), floor))
    return tuple(pieces)
