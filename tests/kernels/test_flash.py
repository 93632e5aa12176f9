"""What the flash member gives the packages, by packages that compute as the reference does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels import Place, make_backend
from kernels.flash import CACHE_OPERATIONS, IN_VLLM, STANDALONE, FlashAttention, find_flash
from kernels.interface import AttentionBatch, AttentionParams, KVShape
from kernels.reference import ReferenceAttention
from tests.kernels.attending import Contents, alone, mixed, run_schedule, whole
from tests.kernels.paging import random_tables

LENGTHS = [37, 70, 16, 5]
PLAIN = AttentionParams(scale=0.25)


def computed(query: Any, pages: tuple[Any, Any], batch: AttentionBatch, named: Any) -> Any:
    """The reference's attention over one layer's pages, checked as the packages check."""
    keys, values = pages
    assert batch.query_start.dtype == batch.context_len.dtype == torch.int32
    assert batch.block_table.dtype == torch.int32
    assert batch.block_table.stride(-1) == 1
    assert keys.dtype == values.dtype == query.dtype
    assert keys.dtype in (torch.float16, torch.bfloat16)
    num_pages, page_size, kv_heads, head_dim = keys.shape
    assert page_size % 16 == 0
    assert named["causal"] is True
    left, right = named["window_size"]
    assert (left, right) == (-1, -1) or (left >= 0 and right == 0)
    shape = KVShape(1, num_pages, page_size, kv_heads, head_dim, torch.float64)
    backend = ReferenceAttention(shape)
    backend._keys[0] = keys.flatten(0, 1).double()
    backend._values[0] = values.flatten(0, 1).double()
    window, softcap = (None if left < 0 else left + 1), named["softcap"] or None
    params = AttentionParams(named["softmax_scale"], window, softcap)
    return backend.attend(0, query.double(), batch, params).to(query.dtype)


def batch_from(named: Any, context_len: Any, page_size: int) -> AttentionBatch:
    start = named["cu_seqlens_q"]
    sizes = named["max_seqlen_q"], named["max_seqlen_k"]
    assert isinstance(sizes[0], int)
    assert isinstance(sizes[1], int)
    assert sizes == (int(start.diff().max()), int(context_len.max()))
    slots = torch.zeros(0, dtype=torch.int64)
    return AttentionBatch(start, context_len, named["block_table"], slots, page_size, *sizes)


def old_function(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any, **named: Any
) -> Any:
    """As in vllm_flash_attn 2.6.2."""
    assert (cu_seqlens_k.dtype, int(cu_seqlens_k[0])) == (torch.int32, 0)
    named |= {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q}
    batch = batch_from(named, cu_seqlens_k.diff().int(), k.shape[1])
    return computed(q, (k, v), batch, named)


class Vllm:
    """As in vLLM's wheel. versions: of FlashAttention that the device can run."""

    def __init__(self, versions: tuple[int, ...]) -> None:
        self.versions = versions
        self.ran: set[int] = set()
        self.stored = 0

    def function(
        self, q: Any, k: Any, v: Any, *, seqused_k: Any, fa_version: int, **named: Any
    ) -> Any:
        assert "cu_seqlens_k" not in named
        self.ran.add(fa_version)
        return computed(q, (k, v), batch_from(named, seqused_k, k.shape[1]), named)

    def store(self, key: Any, value: Any, keys: Any, values: Any, slots: Any, *rest: Any) -> None:
        kind, key_scale, value_scale = rest
        assert (kind, float(key_scale), float(value_scale)) == ("auto", 1.0, 1.0)
        assert slots.dtype == torch.int64
        self.stored += 1
        keys.view(-1, *keys.shape[2:])[slots] = key
        values.view(-1, *values.shape[2:])[slots] = value

    def modules(self) -> dict[str, Any]:
        interface = SimpleNamespace(
            is_fa_version_supported=self.versions.__contains__,
            fa_version_unsupported_reason=lambda version: f"no kernel of FA{version} here",
        )
        return {
            IN_VLLM: SimpleNamespace(__name__=IN_VLLM, flash_attn_varlen_func=self.function),
            f"{IN_VLLM}.flash_attn_interface": interface,
            CACHE_OPERATIONS: SimpleNamespace(reshape_and_cache_flash=self.store),
        }


OLD = {STANDALONE: SimpleNamespace(__name__=STANDALONE, flash_attn_varlen_func=old_function)}


def loader(modules: dict[str, Any]) -> Any:
    def load(name: str) -> Any:
        if name not in modules:
            raise ImportError(f"no module {name}")
        return modules[name]

    return load


def backend_of(modules: dict[str, Any], contents: Contents, page_size: int = 16) -> FlashAttention:
    pages = sum(-(-n // page_size) for n in contents.lengths) + 3
    sizes = pages, page_size, contents.num_kv_heads, contents.head_dim
    flash = find_flash("cpu", loader(modules))
    return FlashAttention(KVShape(2, *sizes, torch.float16), "cpu", flash)


def rounded(lengths: list[int]) -> Contents:
    """Contents that float16 holds exactly."""
    contents = Contents(lengths)
    for stream in (contents.queries, contents.keys, contents.values):
        stream[:] = [x.half().float() for x in stream]
    return contents


@pytest.mark.parametrize("package", ["old", "vllm"])
@pytest.mark.parametrize("page_size", [16, 48])
@pytest.mark.parametrize(
    "params",
    [PLAIN, AttentionParams(0.25, sliding_window=20), AttentionParams(0.25, softcap=5.0)],
)
def test_both_forms_of_the_function_give_the_truth(
    package: str, page_size: int, params: AttentionParams
) -> None:
    contents = rounded(LENGTHS)
    exact = ReferenceAttention(KVShape(1, 20, 16, 2, 16, torch.float64))
    tables = random_tables(LENGTHS, exact.shape, seed=1)
    expected = run_schedule(exact, contents, tables, whole(LENGTHS), params)
    for schedule in (mixed(LENGTHS), alone(LENGTHS, 17)):
        backend = backend_of(OLD if package == "old" else Vllm((2,)).modules(), contents, page_size)
        own = random_tables(LENGTHS, backend.shape)
        found = run_schedule(backend, contents, own, schedule, params)
        for left, right in zip(found, expected, strict=True):
            torch.testing.assert_close(left.double(), right, atol=1e-3, rtol=1e-3)


def test_the_newest_version_that_the_device_runs_is_taken() -> None:
    contents = rounded([20])
    for versions, taken in (((2,), 2), ((2, 3), 3)):
        vllm = Vllm(versions)
        backend = backend_of(vllm.modules(), contents)
        run_schedule(backend, contents, [[1, 0]], whole([20]), PLAIN)
        assert (vllm.ran, vllm.stored) == ({taken}, 1)


def test_without_vllms_writer_torch_writes_the_same() -> None:
    contents = rounded([40])
    found = []
    for with_writer in (True, False):
        modules = Vllm((2,)).modules()
        if not with_writer:
            del modules[CACHE_OPERATIONS]
        backend = backend_of(modules, contents)
        found += run_schedule(backend, contents, [[3, 0, 2]], mixed([40]), PLAIN)
    assert torch.equal(*found)


def test_a_package_that_cannot_run_makes_way_for_the_next() -> None:
    broken = loader(Vllm((2,)).modules())

    def load(name: str) -> Any:
        if name == STANDALONE:
            raise OSError("undefined symbol")
        return broken(name)

    assert find_flash("cpu", load).origin == IN_VLLM
    assert find_flash("cpu", loader(OLD | Vllm((2,)).modules())).origin == STANDALONE


def test_where_none_can_run_each_ones_reason_is_told() -> None:
    with pytest.raises(ValueError, match=r"attention is 'flash'.*no module.*no kernel of FA2 here"):
        find_flash("cpu", loader(Vllm(()).modules()))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"eight_bit": True}, "eight_bit is True .*: .* takes False only"),
        ({"sketched": True}, "sketched is True .*: .* takes False only"),
        ({"dtype": torch.float32}, "dtype is float32: .* takes bfloat16 or float16"),
        ({"page_size": 24}, "page_size is 24: .* takes multiples of 16"),
        ({"head_dim": 20}, "head_dim is 20: .* takes multiples of 8 up to 256"),
        ({"head_dim": 264}, "head_dim is 264: .* up to 256"),
    ],
)
def test_pages_that_the_package_cannot_take_are_refused_at_the_start(
    change: dict[str, Any], says: str
) -> None:
    sizes: dict[str, Any] = {"page_size": 16, "head_dim": 16, "dtype": torch.float16} | change
    shape = KVShape(num_layers=1, num_pages=2, num_kv_heads=1, **sizes)
    with pytest.raises(ValueError, match=says):
        FlashAttention(shape, "cpu", find_flash("cpu", loader(OLD)))


def test_it_is_a_member_by_name_and_only_on_cuda() -> None:
    shape = KVShape(1, 2, 16, 1, 16, torch.bfloat16)
    with pytest.raises(ValueError, match="device is 'cpu': attention 'flash' takes cuda"):
        make_backend("flash", shape, Place())


def test_pages_are_copied_and_filled() -> None:
    backend = backend_of(OLD, rounded([20]))
    key = torch.randn(16, 2, 16).half()
    table = torch.tensor([[0]], dtype=torch.int32)
    start, length = torch.tensor([0, 16]).int(), torch.tensor([16]).int()
    batch = AttentionBatch(start, length, table, torch.arange(16), 16, 16, 16)
    backend.write(1, key, 2 * key, batch)
    backend.copy_pages([0], [2])
    for pool, expected in ((backend._keys, key), (backend._values, 2 * key)):
        assert torch.equal(pool[1, 2], expected)
        assert not pool[0, 2].any()
    backend.fill_pages([2], 7.0)
    assert (backend._keys[:, 2] == 7).all()
    assert torch.equal(backend._keys[1, 0], key)
