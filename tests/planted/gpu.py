"""Faults of the GPU kernels and of their plan."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

HERE = "tests/kernels/triton"
runs = Room("kernels/triton/runs.py", (f"{HERE}/test_plan.py",))
plan = Room("kernels/triton/plan.py", (f"{HERE}/test_plan.py",))
decode = Room("kernels/triton/decode.py", (f"{HERE}/test_decode.py", f"{HERE}/test_dflash.py"))
prefill = Room("kernels/triton/prefill.py", (f"{HERE}/test_prefill.py",))
write = Room("kernels/triton/write.py", (f"{HERE}/test_write.py",))
dflash = Room("kernels/triton/dflash.py", (f"{HERE}/test_dflash.py",))

FAULTS: tuple[Fault, ...] = (
    runs.fault(
        "what no window sees is read",
        "A run goes over pages that all its rows have left, where anything may lie.",
        " and _is_gapless(rows, run)",
        "",
    ),
    runs.fault(
        "shared pages are read again below",
        "A row counts the positions of a shared run twice.",
        "            start = shared\n",
        "",
    ),
    plan.fault(
        "leader of the wrong row",
        "Beside sparse rows a dense one reads another row's pages.",
        "leader=dense[p.leader]",
        "leader=p.leader",
    ),
    decode.fault(
        "row sees behind its context",
        "A row reads what a longer one has in the page that they share.",
        "        seen = seen & (position[None, :] < context[:, None])\n",
        "",
    ),
    decode.fault(
        "partials merged as if equal",
        "Parts of a context count the same, whatever their scores are.",
        "take = tl.exp2(own_top - base_of)",
        "take = 1.0",
    ),
    prefill.fault(
        "tokens see the next one",
        "A chunk's tokens attend to what comes after them.",
        "position[None, :] <= own[:, None]",
        "position[None, :] <= own[:, None] + 1",
    ),
    write.fault(
        "half a sketch",
        "Tiles are chosen by the even dimensions of their keys.",
        "((high.to(tl.int32) + 8) << 4)",
        "(8 << 4)",
    ),
    dflash.fault(
        "worth is no share",
        "A head whose attention is spread has tiles that others need.",
        "(mass / mass.sum(-1, keepdim=True)).amax(2)",
        "mass.amax(2)",
    ),
)
