"""python -m kernels.triton.ahead [--targets 80 90] [--dtypes float16] [--dims 64 128] [--brief]

Compiles every kernel for GPUs that are not here, down to machine code by Triton's own ptxas, and
says what each takes. Exit 1 when one does not compile or takes more shared memory than a program
may have there. This shows that the kernels are legal and fit, not that they are right (the tests in
the interpreter do) or fast.
"""

from __future__ import annotations

import argparse
import inspect
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.interface import TILE, AttentionParams, KVShape
from kernels.triton import copy, decode, dflash, launch, prefill, write
from kernels.triton.plan import NARROW

SHARED_LIMIT = {80: 163 * 1024, 90: 227 * 1024}
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
TRITON_TYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
PLAIN = AttentionParams(scale=1.0)
CAPPED = AttentionParams(scale=1.0, softcap=50.0)

# The tensors of the kernels by name: COMPUTED and KEPT stand for the pool's dtypes.
COMPUTED = ("key", "value", "query", "out")
KEPT = ("keys", "values", "source", "target")
FLOATS = (
    "key_scales",
    "value_scales",
    "code_scales",
    "peaks",
    "masses",
    "acc",
    "acc_out",
    "stats",
    "stats_out",
)
LONGS = ("slots", "source_pages", "target_pages")
PLAIN_TYPES = {"int": "i32", "float": "fp32", "tl.int64": "i64"}


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel and what it is compiled for."""

    kernel: Any
    label: str
    shape: KVShape
    constants: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Taken:
    """What a compiled kernel takes: bytes of shared memory, registers and stack of a thread."""

    shared_bytes: int
    registers: int
    stack_bytes: int


def cases(asked: argparse.Namespace) -> Iterator[Case]:
    """Every kernel with every combination of constants; brief: neither eight bits nor softcap."""
    for name, dim, eight_bit in product(asked.dtypes, asked.dims, (False, True)):
        if eight_bit and asked.brief:
            continue
        shape = KVShape(1, 1, 16, 8, dim, DTYPES[name], eight_bit=eight_bit, sketched=True)
        yield from _pool_cases(shape)
        for heads in asked.groups:
            for params in (PLAIN,) if asked.brief else (PLAIN, CAPPED):
                yield from _reading_cases(shape, heads, params)
            yield from _attention_cases(shape, heads)


def _pool_cases(shape: KVShape) -> Iterator[Case]:
    constants = write.constants_of(shape)
    yield Case(write.write_kernel, "write", shape, {**constants, "ROWS": write.TOKENS})
    yield Case(write.sketch_kernel, "sketch", shape, {**constants, "ROWS": write.TOKENS})
    yield Case(copy.copy_kernel, "copy", shape, {"SIZE": copy.BLOCK})


def _reading_cases(shape: KVShape, heads: int, params: AttentionParams) -> Iterator[Case]:
    """The kernels that read K/V."""
    wide = launch.wide_rows(shape)
    more = " capped" if params.softcap else ""
    reading = {**launch.constants_of(shape, heads), **launch.reading_of(shape, params)}
    chunk = {**reading, **launch.sizes_of(wide, shape).options()}
    yield Case(prefill.prefill_kernel, "prefill" + more, shape, chunk)
    for label, m, chosen in (
        ("narrow", NARROW, False),
        ("wide", wide, False),
        ("chosen", NARROW, True),
    ):
        sizes = launch.sizes_of(m, shape).options()
        constants = {**reading, **sizes, "CHOSEN": chosen, "LANES": TILE}
        yield Case(decode.segment_kernel, label + more, shape, constants)
    common = launch.constants_of(shape, heads)
    weighing = {**common, **launch.worth_constants(shape, params)}
    yield Case(dflash.worth_kernel, "worth" + more, shape, weighing)


def _attention_cases(shape: KVShape, heads: int) -> Iterator[Case]:
    """The kernels around them."""
    common = launch.constants_of(shape, heads)
    merged = {name: common[name] for name in launch.MERGED}
    yield Case(decode.merge_kernel, "merge", shape, merged)


def compiled(case: Case, target: int) -> Taken:
    """Compiles a case for a compute capability, 80 for sm_80, 90 for sm_90a."""
    parameters = inspect.signature(case.kernel.fn).parameters
    signature = {name: _type_of(name, str(p.annotation), case) for name, p in parameters.items()}
    given = {name: value for name, value in case.constants.items() if name in signature}
    options = {name: value for name, value in case.constants.items() if name not in signature}
    aligned = [["tt.divisibility", 16]]
    attributes = {
        (index,): aligned for index, kind in enumerate(signature.values()) if kind[0] == "*"
    }
    source = ASTSource(case.kernel, signature, given, attributes)
    kernel = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
    registers, stack = _resources(kernel.asm["cubin"])
    return Taken(kernel.metadata.shared, registers, stack)


def _type_of(name: str, annotation: str, case: Case) -> str:
    """The type of a parameter, as Triton's signatures write it."""
    if annotation == "tl.constexpr":
        return "constexpr"
    if annotation in PLAIN_TYPES:
        return PLAIN_TYPES[annotation]
    computed = TRITON_TYPES[case.shape.dtype]
    kinds = {
        **dict.fromkeys(COMPUTED, computed),
        **dict.fromkeys(KEPT, "i8" if case.shape.eight_bit else computed),
        **dict.fromkeys(FLOATS, "fp32"),
        "codes": "u8",
        **dict.fromkeys(LONGS, "i64"),
    }
    return "*" + kinds.get(name, "i32")


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of stack, spilled registers among them, of each thread."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        tool = triton.knobs.nvidia.cuobjdump.path
        command = [tool, "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def main() -> int:
    """Compiles and prints a line for each case; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kernels.triton.ahead")
    parser.add_argument("--targets", type=int, nargs="+", default=[80, 90], choices=SHARED_LIMIT)
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 3, 4, 8])
    parser.add_argument("--brief", action="store_true", help="neither eight bits nor softcap")
    parser.add_argument("--limit", type=int, help="bytes of shared memory, instead of the GPU's")
    asked = parser.parse_args()
    if not isinstance(write.write_kernel, triton.JITFunction):
        parser.error("TRITON_INTERPRET is set: Triton interprets and can't compile")
    count = failed = 0
    for case in cases(asked):
        for target in asked.targets:
            count += 1
            failed += not _reported(case, target, asked.limit or SHARED_LIMIT[target])
    print(f"ahead: kernels={count} targets={len(asked.targets)} failed={failed}")
    return 1 if failed else 0


def _reported(case: Case, target: int, limit: int) -> bool:
    """Compiles one case and prints its line; whether it is legal and fits."""
    kept = "int8" if case.shape.eight_bit else "-"
    dtype = str(case.shape.dtype).removeprefix("torch.")
    heads = case.constants.get("HEADS", "-")
    label = f"sm_{target} {case.label:15} {dtype:9} {kept:5} D={case.shape.head_dim} G={heads}"
    try:
        taken = compiled(case, target)
    except Exception as error:  # whatever the compiler raises is what this is to find
        print(f"{label} FAILED {type(error).__name__}: {str(error).strip()[-200:]}", flush=True)
        return False
    fits = taken.shared_bytes <= limit
    print(
        f"{label} shared={taken.shared_bytes} registers={taken.registers} "
        f"stack={taken.stack_bytes}{'' if fits else ' DOES NOT FIT'}",
        flush=True,
    )
    return fits


if __name__ == "__main__":
    sys.exit(main())
