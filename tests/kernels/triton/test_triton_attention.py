"""The backend refuses what it can't hold, and its tables can stay in one place for a graph."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels import BACKENDS, Place, make_backend
from kernels.interface import AttentionBatch, AttentionParams, KVShape
from kernels.triton.attention import TritonAttention
from tests.kernels.paging import Part, batch_of
from tests.kernels.triton.test_decode import family
from tests.kernels.triton.twins import DEVICE, last_tokens, on_device, shape_of, twins

PARAMS = AttentionParams(0.25)
SMALL = shape_of(16, 16)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (replace(SMALL, dtype=torch.float64), "float32, float16, bfloat16, not torch.float64"),
        (replace(SMALL, head_dim=257), "head_dim is 257"),
        (replace(SMALL, page_size=0), "page_size is 0"),
        (replace(SMALL, page_size=24, sketched=True), "page_size is 24: dflash needs a multiple"),
        (replace(SMALL, num_pages=0), "num_pages is 0"),
    ],
)
def test_pools_that_it_can_not_hold_are_refused(shape: KVShape, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TritonAttention(shape, DEVICE)


def good() -> AttentionBatch:
    return batch_of([Part([0, 1], 0, 20)], 16)


@pytest.mark.parametrize(
    ("batch", "query", "words"),
    [
        (good(), torch.zeros(20, 4, 17), r"query has the shape \(20, 4, 17\), not \(20, a mult"),
        (good(), torch.zeros(20, 3, 16), r"query has the shape \(20, 3, 16\)"),
        (good(), torch.zeros(19, 4, 16), r"query has the shape \(19, 4, 16\)"),
        (good(), torch.zeros(20, 4, 16).double(), "query is torch.float64"),
        (replace(good(), page_size=8), None, "page_size of the batch is 8, the pool's 16"),
        (batch_of([Part([0, 96], 0, 20)], 16), None, r"the pages \[0, 96\]"),
        (replace(good(), context_len=torch.tensor([33])), None, "20 new of 33 tokens"),
        (replace(good(), context_len=torch.tensor([19])), None, "20 new of 19 tokens"),
        (replace(good(), slot_mapping=torch.arange(19)), None, r"not int64 \(20,\)"),
        (replace(good(), slot_mapping=torch.arange(20) - 1), None, "leaves the pool's 1536"),
        (
            replace(last_tokens([list(range(10))], [150], 16), budget=torch.tensor([80])),
            torch.zeros(1, 2, 16),
            "a budget needs a pool with sketches",
        ),
    ],
)
def test_batches_that_do_not_fit_are_refused(
    batch: AttentionBatch, query: torch.Tensor | None, words: str
) -> None:
    backend = TritonAttention(SMALL, DEVICE)
    with pytest.raises(ValueError, match=words):
        backend.attend(0, torch.zeros(20, 4, 16) if query is None else query, batch, PARAMS)


def test_writes_that_do_not_fit_are_refused() -> None:
    backend = TritonAttention(SMALL, DEVICE)
    fit, long, integer = (
        torch.zeros(20, 2, 16),
        torch.zeros(20, 2, 17),
        torch.zeros(20, 2, 16).int(),
    )
    for key, value, words in (
        (fit, long, "value has the shape"),
        (integer, fit, "key is torch.int"),
    ):
        with pytest.raises(ValueError, match=words):
            backend.write(0, key, value, good())
    with pytest.raises(ValueError, match="layer 1 of 1"):
        backend.write(1, fit, fit, good())
    with pytest.raises(ValueError, match="page 96 is none"):
        backend.copy_pages([1], [96])
    with pytest.raises(ValueError, match="1 source pages, 2 target pages"):
        backend.copy_pages([1], [2, 3])


def test_it_is_chosen_by_name() -> None:
    assert make_backend("triton", SMALL, Place(DEVICE)).name == "triton"
    assert not make_backend("triton", SMALL, Place(DEVICE)).bitwise


def test_without_triton_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs Triton, which is not installed"):
        make_backend("triton", SMALL, Place())


@pytest.mark.parametrize(
    ("shape", "capability", "installed", "name"),
    [
        (SMALL, (9, 0), True, "triton"),
        (SMALL, (7, 5), True, "gather"),
        (SMALL, (9, 0), False, "gather"),
        (replace(SMALL, head_dim=320), (9, 0), True, "gather"),
        (replace(SMALL, dtype=torch.float64), (9, 0), True, "gather"),
    ],
)
def test_on_a_gpu_it_is_the_automatic_choice_where_it_can_serve(
    shape: KVShape,
    capability: tuple[int, int],
    installed: bool,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    for member in BACKENDS:
        monkeypatch.setitem(BACKENDS, member, lambda *_, member=member: made.append(member))
    monkeypatch.setattr("kernels.find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    make_backend("auto", shape, Place("cuda:0"))
    assert made == [name]


@pytest.mark.parametrize("budgeted", [False, True])
def test_held_tables_serve_step_after_step_from_the_same_memory(budgeted: bool) -> None:
    """What a graph needs: the batch's tensors are refilled, launches and addresses stay."""
    made = twins(replace(shape_of(16, 64, 1), sketched=True))
    tables, lengths = family(made)
    batch = last_tokens(tables, lengths, 16)
    if budgeted:
        batch = replace(batch, budget=torch.full((len(lengths),), 96, dtype=torch.int32))
    held = on_device(batch)
    made.triton.hold(held, 4, windows=(None, 70))
    (planned,) = made.triton._held
    kept = {
        key: (t.room, t._ints.data_ptr(), t.acc.data_ptr()) for key, t in planned.tables.items()
    }
    for earlier in (0, 40, 200):
        shorter = [max(1, n - earlier) for n in lengths]
        step = last_tokens(tables, shorter, 16)
        width = step.block_table.shape[1]
        for target in {id(b): b for b in (held, held.on_host)}.values():
            target.context_len.copy_(step.context_len)
            target.slot_mapping.copy_(step.slot_mapping)
            target.block_table[:, :width].copy_(step.block_table)
        made.triton.plan(held)
        for params in (PARAMS, AttentionParams(0.25, sliding_window=70)):
            query = made.draw(len(lengths), 4)
            found = made.triton.attend(0, query.to(DEVICE), held, params)
            expected = made.reference.attend(0, query.double(), held.on_host, params)
            torch.testing.assert_close(found.cpu().double(), expected, atol=1e-5, rtol=1e-5)
    assert kept == {
        key: (t.room, t._ints.data_ptr(), t.acc.data_ptr()) for key, t in planned.tables.items()
    }
    with pytest.raises(ValueError, match="no tables are held for window 5"):
        made.triton.attend(0, query.to(DEVICE), held, AttentionParams(0.25, sliding_window=5))
    made.triton.release(held)
    assert not made.triton._held


def test_a_batch_with_chunks_is_not_held() -> None:
    backend = TritonAttention(SMALL, DEVICE)
    with pytest.raises(ValueError, match="decode rows only"):
        backend.hold(on_device(good()), 4)
