"""Which decode rows read the same pages: runs of positions, at any depth of the tree of prompts.

    rows sorted by table      runs                      who reads them
    [7 3 9 1]                 [0, 2) pages 7 3          all three
    [7 3 9 4 4]               [2, 3) page 9             the first two
    [7 3 8]                   [3, 4), [3, 5), [2, 3)    one each

Rows that share pages lie side by side once their tables are sorted, so a tree node is a range of
rows, and the pages that it shares are the least that two neighbours in it have in common.

A run becomes one of its own only where it saves more than it costs (`Costs`). Otherwise its pages
are left to the runs below it, which begin that much earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Rows:
    """R decode rows. tables: [R, width], page ids. They see positions [first[r], context[r])."""

    tables: Ints
    first: Ints
    context: Ints
    page_size: int


@dataclass(frozen=True, slots=True)
class Run:
    """Positions [begin, end) that members read from the same pages, each what it sees of them."""

    begin: int
    end: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Costs:
    """When a run of its own pays. All figures are bytes moved, for all kv heads of one layer.

    token: K and V of one position. partial: one row's partial result, written and read again.
    heads: query heads of a kv head. tile: query rows that one reading of the pages serves.

    Members that read a common run of n positions apart move members * n * token bytes. Together
    they move n * token for each started tile of members * heads query rows, and every member gets
    one partial result more. For 32 query and 8 kv heads of 128 in 16 bits, token = 8 * 2 * 128 * 2
    = 4096 and partial = 2 * 32 * 130 * 4 = 33280: two rows share from 17 positions on, eight from
    10. Rows apart may find each other's pages in the L2 cache; this does not count on it.
    """

    token: int
    partial: int
    heads: int
    tile: int

    def reads(self, members: int) -> int:
        """How often a run of so many members is read."""
        return -(-members * self.heads // self.tile)

    def pays(self, own: list[int], length: int) -> bool:
        """Whether members that see own[i] positions of a run of this length should share it."""
        saved = sum(own) - length * self.reads(len(own))
        return saved * self.token > len(own) * self.partial


def costs_of(kv_heads: int, heads: int, key_bytes: int, head_dim: int, tile: int) -> Costs:
    """Returns the costs of a layer.

    heads: query heads of a kv head. key_bytes: of one key of one kv head. tile: as in Costs.
    """
    partial = 2 * kv_heads * heads * (head_dim + 2) * 4
    return Costs(kv_heads * 2 * key_bytes, partial, heads, tile)


def runs_of(rows: Rows, costs: Costs) -> list[Run]:
    """Returns runs that cover each position that a row sees exactly once for that row."""
    pages = -(-rows.context // rows.page_size)
    order = _sorted_rows(rows.tables)
    common = _common_pages(rows.tables[order])
    found: list[Run] = []
    waiting = [(0, len(order), 0)]  # a tree node: rows order[low:high], from page `start` on
    while waiting:
        low, high, start = waiting.pop()
        if high - low == 1:
            found.extend(_run(rows, order[low:high], start, int(pages[order[low]])))
            continue
        shared = int(common[low : high - 1].min())
        run = _run(rows, order[low:high], start, shared)
        if run and _worth(rows, run[0], costs):
            found.extend(run)
            start = shared
        cuts = [low, *(low + 1 + np.flatnonzero(common[low : high - 1] == shared)), high]
        waiting.extend((int(a), int(b), start) for a, b in pairwise(cuts))
    return found


def apart(rows: Rows) -> list[Run]:
    """Returns one run for each row."""
    ends = -(-rows.context // rows.page_size)
    return [run for r, end in enumerate(ends) for run in _run(rows, [r], 0, int(end))]


def _sorted_rows(tables: Ints) -> list[int]:
    """Rows in the order of their tables, so that what begins alike lies together."""
    keys = [table.astype(">i4").tobytes() for table in tables]
    return sorted(range(len(keys)), key=keys.__getitem__)


def _common_pages(tables: Ints) -> npt.NDArray[np.int64]:
    """[R - 1]: how many pages each row has in common with the next one, from the beginning on.

    Padding may be among them: a run is cut to what its members see.
    """
    differ = tables[1:] != tables[:-1]
    found: npt.NDArray[np.int64] = np.where(differ.any(1), differ.argmax(1), tables.shape[1])
    return found


def _run(rows: Rows, members: list[int], start: int, stop: int) -> list[Run]:
    """The run of pages [start, stop), cut to what members see; without those that see nothing."""
    low, high = start * rows.page_size, stop * rows.page_size
    seen = [r for r in members if max(low, rows.first[r]) < min(high, rows.context[r])]
    if not seen:
        return []
    begin = max(low, min(int(rows.first[r]) for r in seen))
    end = min(high, max(int(rows.context[r]) for r in seen))
    return [Run(begin, end, tuple(seen))]


def _worth(rows: Rows, run: Run, costs: Costs) -> bool:
    """Whether the run is one of its own: it pays, and windows leave no gap between its members."""
    return costs.pays(_own(rows, run), run.end - run.begin) and _is_gapless(rows, run)


def _own(rows: Rows, run: Run) -> list[int]:
    """How many positions of the run each member sees."""
    return [end - begin for begin, end in _spans(rows, run)]


def _is_gapless(rows: Rows, run: Run) -> bool:
    """Whether each position of the run is seen by a member. What none sees may be anything."""
    reached = run.begin
    for begin, end in sorted(_spans(rows, run)):
        if begin > reached:
            return False
        reached = max(reached, end)
    return True


def _spans(rows: Rows, run: Run) -> list[tuple[int, int]]:
    """The positions of the run that each member sees, [begin, end)."""
    return [
        (max(run.begin, int(rows.first[r])), min(run.end, int(rows.context[r])))
        for r in run.members
    ]
