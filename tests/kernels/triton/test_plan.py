"""A plan covers every position that a row sees exactly once, from pages that are the row's own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.interface import TILE
from kernels.triton.plan import NARROW, STEP, Chosen, Machine, Plan, make_plan
from kernels.triton.runs import Costs, Rows, Run, costs_of, runs_of

CHEAP = Costs(token=64, partial=64, heads=3, tile=64)


@st.composite
def families(draw: st.DrawFn) -> Rows:
    """Rows that leave one another at any page; some end inside of what they share."""
    size = draw(st.sampled_from([1, 4, 16, 64]))
    tables: list[list[int]] = []
    fresh = 0
    for _ in range(draw(st.integers(1, 9))):
        kept: list[int] = []
        if tables:
            parent = draw(st.sampled_from(tables))
            kept = parent[: draw(st.integers(0, len(parent)))]
        more = draw(st.integers(0 if kept else 1, 12))
        tables.append(kept + list(range(fresh, fresh + more)))
        fresh += more
    context = [(len(t) - 1) * size + draw(st.integers(1, size)) for t in tables]
    window = draw(st.none() | st.integers(1, 200))
    first = [max(0, n - window) if window else 0 for n in context]
    width = max(map(len, tables)) + draw(st.integers(0, 2))
    padded = np.array([t + [0] * (width - len(t)) for t in tables], dtype=np.int32)
    return Rows(padded, np.array(first, np.int32), np.array(context, np.int32), size)


def seen(rows: Rows, row: int) -> range:
    return range(int(rows.first[row]), int(rows.context[row]))


def assert_whole(rows: Rows, plan: Plan, chosen: Chosen, costs: Costs) -> None:
    """Walks the items as the kernels do and counts what each query row reads."""
    read: list[Counter[int]] = [Counter() for _ in range(len(rows.context) * costs.heads)]
    written: Counter[int] = Counter()
    for items, tile in ((plan.narrow, NARROW), (plan.wide, costs.tile), (plan.chosen, NARROW)):
        for leader, begin, end, first, last in items.tolist():
            assert 0 < last - first <= tile
            assert begin < end
            for row in range(first, last):
                written[row] += 1
                owner = int(plan.owner[row // costs.heads])
                into = read[owner * costs.heads + row % costs.heads]
                if items is plan.chosen:
                    assert chosen.rows[leader] == owner
                    into.update(range(begin, end))
                    continue
                into.update(p for p in range(begin, end) if p in seen(rows, owner))
                pages = slice(begin // rows.page_size, (end - 1) // rows.page_size + 1)
                mine = min(pages.stop, -(-int(rows.context[owner]) // rows.page_size))
                same = (
                    rows.tables[leader, pages.start : mine]
                    == rows.tables[owner, pages.start : mine]
                )
                assert same.all()
    assert written == Counter(range(len(plan.owner) * costs.heads))
    for row in range(len(rows.context)):
        expected = (
            range(chosen.tiles[chosen.rows.index(row)]) if row in chosen.rows else seen(rows, row)
        )
        for head in range(costs.heads):
            assert read[row * costs.heads + head] == Counter(expected)


def assert_merged(plan: Plan) -> None:
    """Each row merges its own partials, all of them once."""
    for row in range(len(plan.merge_start) - 1):
        own = plan.merge[plan.merge_start[row] : plan.merge_start[row + 1]]
        assert sorted(own) == np.flatnonzero(plan.owner == row).tolist()


@given(families(), st.data())
def test_every_row_reads_every_position_once(rows: Rows, data: st.DataObject) -> None:
    costs = Costs(
        token=data.draw(st.sampled_from([1, 64, 4096])),
        partial=64,
        heads=data.draw(st.sampled_from([1, 3, 8, 40])),
        tile=data.draw(st.sampled_from([16, 64])),
    )
    count = len(rows.context)
    picked = data.draw(st.sets(st.integers(0, count - 1)))
    chosen = Chosen(tuple(sorted(picked)), tuple(5 + 3 * r for r in sorted(picked)))
    room = data.draw(st.none() | st.integers(count, 4 * count))
    machine = Machine(data.draw(st.sampled_from([1, 8, 264])), room)
    plan = make_plan(rows, chosen, costs, machine)
    assert_whole(rows, plan, chosen, costs)
    assert_merged(plan)
    assert room is None or len(plan.owner) <= room


@given(families())
def test_where_sharing_is_free_no_position_is_read_twice(rows: Rows) -> None:
    rows = replace(rows, first=np.zeros_like(rows.first))
    read = Counter(
        (int(rows.tables[run.members[0], position // rows.page_size]), position)
        for run in runs_of(rows, Costs(token=1, partial=0, heads=1, tile=1000))
        for position in range(run.begin, run.end)
    )
    assert set(read.values()) == {1}


@given(families())
def test_what_no_member_sees_is_not_read(rows: Rows) -> None:
    for run in runs_of(rows, Costs(token=1, partial=0, heads=1, tile=1000)):
        union = {p for r in run.members for p in seen(rows, r)}
        assert union.issuperset(range(run.begin, run.end))


def two_depths() -> Rows:
    """Four rows share 20 pages; the first two of them 10 more."""
    stem, branch = list(range(20)), list(range(20, 30))
    tables = [[*stem, *branch, 90], [*stem, *branch, 91, 92], [*stem, 93], [*stem, 94, 95]]
    context = np.array([16 * len(t) - 3 for t in tables], np.int32)
    padded = np.array([t + [0] * (32 - len(t)) for t in tables], np.int32)
    return Rows(padded, np.zeros(4, np.int32), context, 16)


def test_common_pages_at_two_depths_are_two_runs() -> None:
    runs = runs_of(two_depths(), CHEAP)
    assert set(runs) == {
        Run(0, 320, (0, 1, 2, 3)),
        Run(320, 480, (0, 1)),
        Run(480, 493, (0,)),
        Run(480, 509, (1,)),
        Run(320, 333, (2,)),
        Run(320, 349, (3,)),
    }


def test_what_does_not_pay_is_left_to_the_runs_below() -> None:
    dear = Costs(token=64, partial=64 * 200, heads=3, tile=64)
    assert set(runs_of(two_depths(), dear)) == {
        Run(0, 320, (0, 1, 2, 3)),
        Run(320, 493, (0,)),
        Run(320, 509, (1,)),
        Run(320, 333, (2,)),
        Run(320, 349, (3,)),
    }


def test_rows_whose_windows_are_far_apart_do_not_share() -> None:
    """Four rows on the same pages; nobody sees positions [50, 60), whose page may be anyone's."""
    table = np.arange(8, dtype=np.int32)
    rows = Rows(
        np.stack([table] * 4),
        np.array([0, 0, 60, 60], np.int32),
        np.array([50, 50, 110, 110], np.int32),
        16,
    )
    runs = runs_of(rows, Costs(token=64, partial=1, heads=1, tile=64))
    assert {(run.begin, run.end) for run in runs} == {(0, 50), (60, 110)}


@pytest.mark.parametrize(("members", "least"), [(2, 17), (8, 10)])
def test_the_cost_rule_is_the_arithmetic_of_its_docstring(members: int, least: int) -> None:
    costs = costs_of(kv_heads=8, heads=4, key_bytes=256, head_dim=128, tile=64)
    assert (costs.token, costs.partial) == (4096, 33280)
    assert costs.pays([least] * members, least)
    assert not costs.pays([least - 1] * members, least - 1)


def test_more_rows_than_a_tile_holds_are_more_readings() -> None:
    costs = costs_of(kv_heads=8, heads=4, key_bytes=256, head_dim=128, tile=64)
    assert [costs.reads(members) for members in (1, 16, 17, 32)] == [1, 1, 2, 2]


def one_row(context: int) -> Rows:
    table = np.arange(-(-context // 16), dtype=np.int32)[None]
    return Rows(table, np.zeros(1, np.int32), np.full(1, context, np.int32), 16)


def test_one_long_row_is_split_for_all_programs() -> None:
    rows = one_row(8192)
    costs = costs_of(kv_heads=8, heads=4, key_bytes=256, head_dim=128, tile=64)
    plan = make_plan(rows, Chosen(), costs, Machine(programs=32))
    assert len(plan.narrow) == 32
    assert not len(plan.wide)
    assert set((plan.narrow[:, 2] - plan.narrow[:, 1]).tolist()) == {256}


def test_a_piece_is_worth_its_partials() -> None:
    """Many programs do not make pieces so short that partials outweigh what is read."""
    rows = one_row(1000)
    costs = costs_of(kv_heads=1, heads=8, key_bytes=256, head_dim=128, tile=64)
    plan = make_plan(rows, Chosen(), costs, Machine(programs=264))
    lengths = plan.narrow[:, 2] - plan.narrow[:, 1]
    assert lengths.min() * costs.token >= 2 * costs.partial
    assert all(begin % STEP == 0 for begin in plan.narrow[:, 1].tolist())


def test_lists_of_tiles_are_split_like_runs() -> None:
    rows = one_row(8192)
    costs = costs_of(kv_heads=8, heads=4, key_bytes=256, head_dim=128, tile=64)
    plan = make_plan(rows, Chosen((0,), (64,)), costs, Machine(programs=4))
    assert plan.chosen[:, 1:3].tolist() == [[0, 16], [16, 32], [32, 48], [48, 64]]
    assert 64 * TILE // 4 == 16 * TILE
