"""The row-wise operations of every member agree with float64 formulas."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from kernels import Place, make_ops
from kernels.cpu.elementwise import CpuOps
from kernels.ops import Ops
from kernels.torch_ops import TorchOps
from tests.kernels.paging import same_bits

MEMBERS = pytest.mark.parametrize("ops", [CpuOps(), TorchOps()], ids=["cpu", "torch"])
WIDTHS = pytest.mark.parametrize("width", [8, 44, 64, 577])


def draw(*size: int) -> torch.Tensor:
    return 2 * torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


def normed(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    x, weight = x.double(), weight.double()
    return (x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * weight).float()


@MEMBERS
@pytest.mark.parametrize("outputs", [1, 31, 96])
@pytest.mark.parametrize("rows", [0, 1, 2, 13, 50])
def test_linear_is_the_matrix_product(ops: Ops, outputs: int, rows: int) -> None:
    weight, bias, x = draw(outputs, 70), draw(outputs), draw(rows, 90)[:, :70]
    found = ops.pack(weight, bias)(x)
    expected = x.double() @ weight.double().T + bias.double()
    torch.testing.assert_close(found.double(), expected, atol=5e-5, rtol=1e-5)
    assert found.shape == (rows, outputs)


@MEMBERS
def test_linear_without_bias_and_from_bfloat16(ops: Ops) -> None:
    weight, x = draw(40, 24).bfloat16(), draw(3, 24)
    torch.testing.assert_close(ops.pack(weight, None)(x), x @ weight.float().T)


@pytest.mark.parametrize("outputs", [1, 31, 96])
@pytest.mark.parametrize("rows", [1, 2, 13, 50])
def test_half_weights_give_the_product_with_rounded_weights(outputs: int, rows: int) -> None:
    weight, bias, x = draw(outputs, 70), draw(outputs), draw(rows, 90)[:, :70]
    found = CpuOps(half=True).pack(weight, bias)(x)
    rounded = CpuOps().pack(weight.half(), bias)(x)
    assert same_bits(found, rounded)
    exact = x.double() @ weight.double().T + bias.double()
    bound = x.double().abs() @ weight.double().abs().T * 2**-11 + 5e-5
    assert ((found.double() - exact).abs() <= bound).all()
    assert not torch.allclose(found.double(), exact, atol=1e-6)


def test_a_weight_that_float16_does_not_hold_is_refused() -> None:
    weight = draw(40, 24)
    weight[33, 3] = -70000.0
    with pytest.raises(ValueError, match="a weight is 70000, above float16's largest 65504"):
        CpuOps(half=True).pack(weight, None)


def test_half_weights_are_refused_where_torch_computes() -> None:
    with pytest.raises(ValueError, match="take a CPU, float32 and a C compiler"):
        make_ops(Place(), torch.bfloat16, half=True)


def test_packing_keeps_no_view_of_the_weight() -> None:
    weight, x = draw(40, 24), draw(3, 24)
    linear = CpuOps().pack(weight, None)
    expected = linear(x)
    weight.zero_()
    assert torch.equal(linear(x), expected)


@MEMBERS
@WIDTHS
def test_rms_norm(ops: Ops, width: int) -> None:
    x, weight = draw(5, width), draw(width)
    torch.testing.assert_close(ops.rms_norm(x, weight, 1e-5), normed(x, weight, 1e-5))


@MEMBERS
@WIDTHS
def test_add_rms_norm_adds_in_place_first(ops: Ops, width: int) -> None:
    x, delta, weight = draw(5, width), draw(6, width)[1:], draw(width)
    total = x + delta
    found = ops.add_rms_norm(x, delta, weight, 1e-6)
    torch.testing.assert_close(x, total)
    torch.testing.assert_close(found, normed(total, weight, 1e-6))


@MEMBERS
def test_rms_norm_heads_touches_its_view_only(ops: Ops) -> None:
    x, weight = draw(5, 7, 24), draw(24)
    before = x.clone()
    ops.rms_norm_heads(x[:, 2:5], weight, 1e-5)
    torch.testing.assert_close(x[:, 2:5], normed(before[:, 2:5], weight, 1e-5))
    assert torch.equal(x[:, :2], before[:, :2])
    assert torch.equal(x[:, 5:], before[:, 5:])


@MEMBERS
@pytest.mark.parametrize("half", [4, 12, 32])
def test_rope_rotates_halves_by_position(ops: Ops, half: int) -> None:
    x, positions = draw(5, 6, 2 * half), torch.tensor([0, 3, 9, 3, 1])
    angle = draw(10, half)
    before = x.clone()
    ops.rope(x[:, :4], positions, angle.cos(), angle.sin())
    turn = torch.polar(torch.ones_like(angle), angle)[positions][:, None]
    rotated = torch.complex(before[..., :half], before[..., half:]) * turn
    expected = torch.cat([rotated.real, rotated.imag], dim=-1)
    torch.testing.assert_close(x[:, :4], expected[:, :4])
    assert torch.equal(x[:, 4:], before[:, 4:])


@MEMBERS
@WIDTHS
def test_silu_mul_takes_gate_then_up(ops: Ops, width: int) -> None:
    x = draw(5, 2 * width)
    gate, up = x.double().chunk(2, dim=1)
    torch.testing.assert_close(ops.silu_mul(x), (functional.silu(gate) * up).float())


@MEMBERS
def test_silu_of_huge_gates_is_finite_and_right(ops: Ops) -> None:
    x = torch.tensor([[-1e4, -100.0, 0.0, 100.0, 1e4] + [1.0] * 5])
    expected = torch.tensor([[0.0, 0.0, 0.0, 100.0, 1e4]])
    torch.testing.assert_close(ops.silu_mul(x), expected)
