"""The host's plan of a step's decode rows: runs, their splits, and the work items of the kernels.

    runs       who reads what together (`kernels.triton.runs`)
    splits     a long run in pieces, so that few rows fill a GPU too
    partials   one for each member of each piece: (maximum, sum, weighted values), by decode row
    items      (leader, begin, end, first row, end row): what one program does for each kv head

A partial has `heads` query rows, one for each query head of a kv head; an item takes a large tile
of them, or up to NARROW where few are left, so that one row does not pay for a large tile. A row
that reads chosen tiles only (`kernels.dflash`) gets items over its list of tiles instead.

Ints in, ints out: nothing here knows of torch or of a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernels.interface import TILE
from kernels.triton.runs import Costs, Ints, Rows, Run, apart, runs_of

NARROW = 16
STEP = 64  # positions that one pass of a kernel's loop reads: pieces are whole multiples
SHARE = 4  # a piece reads at least so many times the bytes that its partials add


@dataclass(frozen=True, slots=True)
class Machine:
    """programs: how many should run at once. partials: how many there is room for; None: any."""

    programs: int
    partials: int | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """rows: decode rows that read chosen tiles only. tiles: how many each of them reads."""

    rows: tuple[int, ...] = ()
    tiles: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """int32 arrays. Items have five columns; an item's rows are partial * heads + head.

    narrow, wide: items over positions of the leader's pages. chosen: items over entries of the
    tile list of sparse row `leader`, an index into Chosen.rows.
    owner: [partials], the decode row of each. merge: the partials of row r in order of position
    are merge[merge_start[r]:merge_start[r + 1]].
    """

    narrow: Ints
    wide: Ints
    chosen: Ints
    owner: Ints
    merge_start: Ints
    merge: Ints


@dataclass(frozen=True, slots=True)
class _Piece:
    """A split of a run; or of a sparse row's list of tiles, then the leader is its index."""

    leader: int
    begin: int
    end: int
    members: tuple[int, ...]


def make_plan(rows: Rows, chosen: Chosen, costs: Costs, machine: Machine) -> Plan:
    """Returns the plan of R rows. Room for one partial a row is always enough.

    Where partials are scarce, splits grow longer and runs have to pay more, step by step.
    """
    dense = [r for r in range(len(rows.context)) if r not in set(chosen.rows)]
    own = replace(
        rows, tables=rows.tables[dense], first=rows.first[dense], context=rows.context[dense]
    )
    for scarce in (1, 2, 4, 16, 64):
        harder = replace(costs, partial=costs.partial * scarce)
        runs = runs_of(own, harder) if dense else []
        pieces, lists = _pieces(runs, chosen, harder, machine.programs // scarce)
        if machine.partials is None or _count(pieces + lists) <= machine.partials:
            break
    else:
        pieces, lists = _pieces(apart(own), chosen, costs, 0)
    pieces = [
        replace(p, leader=dense[p.leader], members=tuple(dense[m] for m in p.members))
        for p in pieces
    ]
    return _assemble(pieces, lists, len(rows.context), costs)


def _pieces(
    runs: list[Run], chosen: Chosen, costs: Costs, programs: int
) -> tuple[list[_Piece], list[_Piece]]:
    """Runs and lists of tiles, each cut into pieces so that about so many programs run."""
    work = sum((run.end - run.begin) * costs.reads(len(run.members)) for run in runs)
    work += sum(chosen.tiles) * TILE
    fair = work // programs if programs else work
    pieces = []
    for run in runs:
        for begin, end in _cut(run.end - run.begin, _least(fair, len(run.members), costs)):
            pieces.append(_Piece(run.members[0], run.begin + begin, run.begin + end, run.members))
    lists = []
    for index, (row, tiles) in enumerate(zip(chosen.rows, chosen.tiles, strict=True)):
        for begin, end in _cut(tiles * TILE, _least(fair, 1, costs)):
            lists.append(_Piece(index, begin // TILE, end // TILE, (row,)))
    return pieces, lists


def _least(fair: int, members: int, costs: Costs) -> int:
    """The least length of a piece: a fair share of the work, and worth its partials."""
    return max(fair, SHARE * members * costs.partial // costs.token, 1)


def _cut(length: int, least: int) -> list[tuple[int, int]]:
    """[0, length) in equal pieces of at least so much, at multiples of STEP; or whole."""
    steps = -(-length // STEP)
    each = -(-steps // max(1, length // least)) * STEP
    return [(begin, min(length, begin + each)) for begin in range(0, length, each)]


def _count(pieces: list[_Piece]) -> int:
    return sum(len(piece.members) for piece in pieces)


def _assemble(pieces: list[_Piece], lists: list[_Piece], num_rows: int, costs: Costs) -> Plan:
    """Numbers the partials and lays out items and merges."""
    owner: list[int] = []
    parts: list[list[tuple[int, int]]] = [[] for _ in range(num_rows)]
    narrow: list[tuple[int, ...]] = []
    wide: list[tuple[int, ...]] = []
    chosen: list[tuple[int, ...]] = []
    for index, piece in enumerate(pieces + lists):
        first = len(owner) * costs.heads
        for member in piece.members:
            parts[member].append((piece.begin, len(owner)))
            owner.append(member)
        of_list = index >= len(pieces)
        for begin, end in _tiles(
            first, len(owner) * costs.heads, NARROW if of_list else costs.tile
        ):
            items = chosen if of_list else narrow if end - begin <= NARROW else wide
            items.append((piece.leader, piece.begin, piece.end, begin, end))
    merge = [partial for part in parts for _, partial in sorted(part)]
    return Plan(
        narrow=_items(narrow),
        wide=_items(wide),
        chosen=_items(chosen),
        owner=np.array(owner, dtype=np.int32),
        merge_start=np.cumsum([0, *(len(part) for part in parts)], dtype=np.int32),
        merge=np.array(merge, dtype=np.int32),
    )


def _items(items: list[tuple[int, ...]]) -> Ints:
    return np.array(items, dtype=np.int32).reshape(-1, 5)


def _tiles(begin: int, end: int, size: int) -> list[tuple[int, int]]:
    """[begin, end) in parts of so many rows; the last may be less."""
    return [(at, min(end, at + size)) for at in range(begin, end, size)]
