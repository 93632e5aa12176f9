"""Captured decode steps: the same bits, from tensors that stay, on pages of nobody else.

No GPU is needed: the tests' capture runs the step anew, and checks that it is given the very same
tensors and numbers each time, which is what a graph would read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from kernels.cpu.attention import CpuAttention
from kernels.interface import AttentionBatch
from kernels.reference import ReferenceAttention
from tests.kernels.paging import Part, batch_of, same_bits
from tests.worker.model.tiny import GROUPED, WINDOW, save_tiny
from worker.model.graphs import GraphedModel, GraphRoom, Recording, sizes_up_to, with_graphs
from worker.model.loading import LoadOptions, load
from worker.runner import Runner
from worker.sequence import pack_tokens
from worker.step import PlanRow, StepPlan

SIZES = (1, 2, 4, 8)
PAGES, SCRATCH = 24, 24
CPU = torch.device("cpu")
ROOM = GraphRoom(SIZES, SCRATCH, max_pages=6, device=CPU)


@dataclass
class Again:
    """A capture that calls again. replays: how often each size ran again."""

    replays: dict[int, int] = field(default_factory=dict)

    def record(self, step: Callable[[], torch.Tensor]) -> Recording:
        step()  # as for warming up
        output = step()
        size = output.shape[0]
        self.replays[size] = 0

        def replay() -> None:
            self.replays[size] += 1
            output.copy_(step())

        return Recording(replay, output)


def addresses(*values: object) -> list[object]:
    """What a graph keeps of its inputs: where tensors lie, and numbers."""
    found: list[object] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append((value.data_ptr(), value.shape, value.stride(), value.dtype))
        elif isinstance(value, AttentionBatch):
            found += addresses(*(getattr(value, name) for name in value.__slots__))
        else:
            found.append(value)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    config = t.Qwen2Config(
        **GROUPED, use_sliding_window=True, sliding_window=WINDOW, layer_types=kinds
    )
    save_tiny(config, path)
    return path


class Stepwise(CpuAttention):
    """The kernels in C, but a batch that was refilled in place is planned anew."""

    capturable = True

    def write(self, layer: int, *rest: Any) -> None:
        if layer == 0:
            self._plan = None
        super().write(layer, *rest)


def lowered(folder: Path) -> Any:
    model: Any = load(folder, LoadOptions(num_pages=PAGES + 1, member="lowered"))
    model.backend = Stepwise(model.backend.shape)
    return model


@dataclass
class Lives:
    """Sequences on pages of their own, driven through a model step by step."""

    model: Any
    tables: list[list[int]]
    ids: list[list[int]]
    done: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.done = [0] * len(self.tables)

    def step(self, counts: dict[int, int], rows: list[int] | None = None) -> torch.Tensor:
        """Computes so many tokens of each sequence; the logits of all rows, or of some."""
        given = {s: (self.done[s], self.done[s] + count) for s, count in counts.items()}
        parts = [Part(self.tables[s], *span) for s, span in given.items()]
        ids = [token for s, (begin, end) in given.items() for token in self.ids[s][begin:end]]
        positions = [at for span in given.values() for at in range(*span)]
        for s, (_, end) in given.items():
            self.done[s] = end
        wanted = torch.tensor(range(len(ids)) if rows is None else rows, dtype=torch.int64)
        batch = batch_of(parts, self.model.backend.shape.page_size)
        with torch.inference_mode():
            given_ids, places = torch.tensor(ids), torch.tensor(positions)
            found: torch.Tensor = self.model.forward(given_ids, places, batch, wanted)
        return found


def lives(model: Any) -> Lives:
    """Six sequences of up to 60 tokens; page 0 is in use."""
    generator = torch.Generator().manual_seed(3)
    ids = [torch.randint(5, 199, (60,), generator=generator).tolist() for _ in range(6)]
    return Lives(model, [list(range(4 * s, 4 * s + 4)) for s in range(6)], ids)


# Prefills, then decode batches of all sizes, shrinking and growing, chunks among them.
SCHEDULE: list[dict[int, int]] = [
    {0: 17, 1: 30, 2: 5},
    {3: 16, 0: 1, 4: 2, 5: 31},
    *[dict.fromkeys(range(6), 1)] * 3,
    {5: 1, 0: 1, 3: 1},
    {2: 1},
    {1: 1, 2: 1},
    {4: 7, 1: 1},
    *[dict.fromkeys((4, 1, 3, 0), 1)] * 2,
    *[dict.fromkeys(range(5, -1, -1), 1)] * 2,
]


def test_a_captured_step_gives_the_bits_of_one_that_is_not(folder: Path) -> None:
    capture = Again()
    plain, graphed = lives(lowered(folder)), lives(GraphedModel(lowered(folder), ROOM, capture))
    for counts in SCHEDULE:
        assert same_bits(graphed.step(counts), plain.step(counts))
    assert capture.replays == {8: 5, 4: 3, 2: 1, 1: 1}


def test_only_the_rows_that_are_asked_for_come_back(folder: Path) -> None:
    plain, graphed = lives(lowered(folder)), lives(GraphedModel(lowered(folder), ROOM, Again()))
    for one in (plain, graphed):
        one.step({0: 3, 1: 4, 2: 5})
    ones = {0: 1, 1: 1, 2: 1}
    assert same_bits(graphed.step(ones, [2, 0]), plain.step(ones, [2, 0]))
    assert graphed.step(ones, []).shape == (0, 199)


def test_results_stay_when_the_next_step_runs(folder: Path) -> None:
    graphed = lives(GraphedModel(lowered(folder), ROOM, Again()))
    graphed.step({0: 3, 1: 4})
    first = graphed.step({0: 1, 1: 1})
    kept = first.clone()
    graphed.step({0: 1, 1: 1})
    assert torch.equal(first, kept)


def test_every_run_reads_the_tensors_that_were_captured(folder: Path) -> None:
    model = lowered(folder)
    seen: dict[int, list[list[object]]] = {}
    forward = model.forward

    def noted(ids: Any, positions: Any, batch: Any, rows: Any) -> Any:
        if batch.max_query_len == 1:
            seen.setdefault(len(ids), []).append(addresses(ids, positions, batch, rows))
        return forward(ids, positions, batch, rows)

    model.forward = noted
    graphed = lives(GraphedModel(model, ROOM, Again()))
    for counts in SCHEDULE:
        graphed.step(counts)
    assert set(seen) == set(SIZES)  # nothing of another size came through: all was padded
    for calls in seen.values():
        assert len(calls) > 2
        assert all(call == calls[0] for call in calls)


class Seen(ReferenceAttention):
    """A backend that can be captured, and whose pages can be seen."""

    capturable = True

    @property
    def pages(self) -> torch.Tensor:
        """A copy: [2, layers, pages, page size, kv heads, head dim]."""
        return torch.stack([self._by_page(self._keys), self._by_page(self._values)])


def test_padding_writes_to_the_scratch_page_alone(folder: Path) -> None:
    model = lowered(folder)
    backend = model.backend = Seen(model.backend.shape)
    graphed = lives(GraphedModel(model, ROOM, Again()))
    graphed.step(dict.fromkeys(range(6), 20))
    # All, then three in a graph of four, in rows that others had.
    for at, batch in ((20, range(6)), (21, (4, 2, 1))):
        before = backend.pages
        graphed.step(dict.fromkeys(batch, 1))
        changed = (backend.pages != before).any(-1).any(-1).any(0).any(0)  # [pages, page size]
        own = {(graphed.tables[s][1], at - 16) for s in batch}
        found = {(page, offset) for page, offset in changed.nonzero().tolist()}
        assert own <= found <= own | {(SCRATCH, 0)}


def test_a_poisoned_pool_does_not_reach_the_results(folder: Path) -> None:
    """Padding reads no page but its own, which it has just written."""
    model = lowered(folder)
    graphed = lives(GraphedModel(model, ROOM, Again()))
    graphed.step({0: 20, 1: 20, 2: 20})
    used = {page for s in range(3) for page in graphed.tables[s]}
    model.backend.fill_pages([p for p in range(PAGES + 1) if p not in used], float("nan"))
    assert graphed.step({0: 1, 1: 1, 2: 1}).isfinite().all()


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ({0: 1, 1: 2}, "a chunk"),
        (dict.fromkeys(range(6), 1), "more than the largest size"),
    ],
)
def test_what_is_not_a_captured_decode_step_runs_as_it_is(
    counts: dict[int, int], why: str, folder: Path
) -> None:
    capture = Again()
    room = replace(ROOM, sizes=(1, 2, 4))
    graphed = lives(GraphedModel(lowered(folder), room, capture))
    graphed.step(dict.fromkeys(range(6), 5))
    graphed.step(counts)
    assert not any(capture.replays.values()), why


def test_longer_tables_than_were_captured_run_as_they_are(folder: Path) -> None:
    capture = Again()
    plain = lives(lowered(folder))
    graphed = lives(GraphedModel(lowered(folder), replace(ROOM, max_pages=3), capture))
    for one in (plain, graphed):
        one.step({0: 3})
    assert same_bits(graphed.step({0: 1}), plain.step({0: 1}))  # its table has four pages
    assert not any(capture.replays.values())


def test_a_sketched_pool_takes_budgets_into_its_graphs(folder: Path) -> None:
    found = []
    for graphs in (False, True):
        model = lowered(folder)
        model.backend = Seen(replace(model.backend.shape, sketched=True))
        driven = GraphedModel(model, ROOM, Again()) if graphs else model
        table = list(range(10, 20))
        ids = torch.arange(5, 156)
        prefill = batch_of([Part(table, 0, 150)], 16)
        driven.forward(ids[:150], torch.arange(150), prefill, torch.tensor([149]))
        step = batch_of([Part(table, 150, 151)], 16)
        for budget in (None, torch.tensor([96]).int(), None):
            given = replace(step, budget=budget)
            found.append(
                driven.forward(ids[150:], torch.tensor([150]), given, torch.tensor([0])).clone()
            )
    dense, sparse, again = found[:3]
    assert torch.equal(dense, again)
    assert not torch.equal(dense, sparse)
    assert all(torch.equal(one, other) for one, other in zip(found[:3], found[3:], strict=True))


def test_without_bounds_a_budget_is_not_dropped_but_left_to_the_model(folder: Path) -> None:
    capture = Again()
    graphed = GraphedModel(lowered(folder), ROOM, capture)
    step = replace(batch_of([Part([0], 0, 1)], 16), budget=torch.tensor([0]).int())
    with pytest.raises(ValueError, match="keeps no sketches"):
        graphed.forward(torch.tensor([5]), torch.tensor([0]), step, torch.tensor([0]))
    assert not any(capture.replays.values())


class Planner(Seen):
    """A backend that makes tables on the host, as `Holding` says."""

    capturable = False

    def __init__(self, shape: Any) -> None:
        super().__init__(shape)
        self.held: list[tuple[AttentionBatch, int, tuple[int | None, ...]]] = []
        self.planned: list[list[list[int]]] = []

    def hold(self, batch: AttentionBatch, num_heads: int, windows: Any = (None,)) -> None:
        self.held.append((batch, num_heads, windows))

    def plan(self, batch: AttentionBatch) -> None:
        assert any(batch is one for one, _, _ in self.held)
        own = batch.on_host
        given = (own.context_len, own.slot_mapping, own.block_table[:, 0])
        self.planned.append([values.tolist() for values in given])


def test_tables_are_planned_for_the_held_batch_before_each_run(folder: Path) -> None:
    model = lowered(folder)
    planner = model.backend = Planner(model.backend.shape)
    graphed = lives(GraphedModel(model, ROOM, Again()))
    assert [len(batch.context_len) for batch, _, _ in planner.held] == [8, 4, 2, 1]
    assert {(heads, windows) for _, heads, windows in planner.held} == {(4, (WINDOW, None))}
    graphed.step({0: 3, 1: 4, 2: 5, 3: 6})
    assert planner.planned == []
    graphed.step({0: 1, 1: 1, 2: 1, 3: 1})
    graphed.step({0: 1, 1: 1, 2: 1})
    assert planner.planned == [
        [[4, 5, 6, 7], [3, 4 * 16 + 4, 8 * 16 + 5, 12 * 16 + 6], [0, 4, 8, 12]],
        [[5, 6, 7, 1], [4, 4 * 16 + 5, 8 * 16 + 6, SCRATCH * 16], [0, 4, 8, SCRATCH]],
    ]


def test_a_backend_that_waits_for_the_device_is_not_captured(folder: Path) -> None:
    model: Any = load(folder, LoadOptions(num_pages=4, member="lowered", backend="gather"))
    with pytest.raises(ValueError, match="'gather' can't be captured"):
        GraphedModel(model, ROOM, Again())
    assert with_graphs(model, ROOM) is model


def test_the_runner_drives_it_like_any_model(folder: Path) -> None:
    capture, checks = Again(), []
    found = []
    for model in (lowered(folder), GraphedModel(lowered(folder), ROOM, capture)):
        runner = Runner(model, CPU)
        prompt = PlanRow(7, pack_tokens([9, 8, 7]), 0, [5])
        runner.compute(StepPlan([prompt]), lambda: checks.append(1))
        both = [
            PlanRow(7, pack_tokens([6]), 3, [5], targets=pack_tokens([1])),
            PlanRow(8, pack_tokens([6]), 0, [2], targets=pack_tokens([2])),
        ]
        found.append(runner.compute(StepPlan(both), lambda: checks.append(1)))
    assert same_bits(*found)
    assert capture.replays[2] == 1
    assert len(checks) >= 6  # each layer of each prefill


def test_sizes_reach_what_runs_together_and_go_no_further() -> None:
    assert sizes_up_to(1) == (1,)
    assert sizes_up_to(3) == (1, 2, 4)
    assert sizes_up_to(20) == (1, 2, 4, 8, 16, 24)
    assert sizes_up_to(10_000)[-1] == 256
