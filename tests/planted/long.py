"""Faults of dflash, of K/V in eight bits, and of the C kernels that do both."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

KERNELS = (
    "tests/kernels/test_dflash.py",
    "tests/kernels/test_eight_bit.py",
    "tests/kernels/test_bitwise.py",
    "tests/kernels/test_attention.py",
)
WORKER = ("tests/worker/test_dflash.py", "tests/worker/test_formats.py")
attention = Room("kernels/cpu/attention.c", KERNELS)
rows = Room("kernels/cpu/rows.h", KERNELS)
pages = Room("kernels/cpu/pages.h", KERNELS)
choose = Room("kernels/cpu/choose.h", KERNELS)
sketch = Room("kernels/cpu/sketch.h", KERNELS)
sparse = Room("kernels/cpu/sparse.h", KERNELS)
pool = Room("kernels/cpu/pool.py", KERNELS)
sequence = Room("worker/sequence.py", WORKER)
allotment = Room("worker/allotment.py", WORKER)
scheduler = Room("worker/scheduler.py", WORKER)
setting = Room("worker/dflash.py", WORKER)
runner = Room("worker/runner.py", WORKER)

FAULTS: tuple[Fault, ...] = (
    attention.fault(
        "the first split's part is taken for all",
        "Of long contexts on several threads the first positions count alone.",
        "w->parts + (i * w->splits + split) * JOB_ROWS + r",
        "w->parts + (i * w->splits) * JOB_ROWS + r",
    ),
    attention.fault(
        "rows pass over pages of others",
        "Two sequences whose tables differ later are taken for one.",
        "    return !memcmp(row->table + first",
        "    return 1 || !memcmp(row->table + first",
    ),
    rows.fault(
        "fold forgets the other maximum",
        "What was summed before a larger score came keeps its weight.",
        "splat(total->max - max)), new",
        "splat(0.0f)), new",
    ),
    rows.fault(
        "values without their scale",
        "In eight bits large values count as much as small ones.",
        "        w *= load(s->tile[t]->value_scale);\n",
        "",
    ),
    rows.fault(
        "a row sees the step's last position",
        "Within a prefill a token attends to the one behind it.",
        "    return (lane + t * LANES >= lo) & (lane + t * LANES < hi);\n",
        "    return (lane + t * LANES >= lo) & (lane + t * LANES <= hi);\n",
    ),
    pages.fault(
        "scales of keys are not copied",
        "Page sizes that are no multiple of 16 read keys with another token's scale.",
        "    to->key_scale[to_lane] = from->key_scale[lane];\n",
        "",
    ),
    choose.fault(
        "recent tiles are chosen like others",
        "A row may not read what was said just before.",
        "    for (int i = n - RECENT_TILES; i < n; i++) rank[i] = INT32_MAX;\n",
        "",
    ),
    choose.fault(
        "the last head alone chooses",
        "A head does not get the tiles that it alone attends to.",
        "larger(load(row->mass + i) * inverse, load(worth + i))",
        "load(row->mass + i) * inverse",
    ),
    choose.fault(
        "heads are compared by what is not their share",
        "A head whose attention is spread has tiles that others need.",
        "splat(1.0f / lane_sum(sum))",
        "splat(1.0f)",
    ),
    choose.fault(
        "spans are not compared",
        "In a long context every span's best tiles are read, whatever they are worth.",
        "exp16(splat(row->peak[s] - most))",
        "exp16(splat(0.0f))",
    ),
    sketch.fault(
        "the codes' offset counts",
        "Tiles are chosen otherwise than the reference does.",
        "    for (int r = 0; r < rows; r++) products[r] -= a[r].less;\n",
        "",
    ),
    sparse.fault(
        "runs are added to the first part only",
        "Of many chosen tiles the first ones count again and again.",
        "(i * s->runs + run) * c.rows + r",
        "(i * s->runs) * c.rows + r",
    ),
    sparse.fault(
        "last chosen tile read to its end",
        "A sparse row sees slots behind its context.",
        "    int seen = (c->keep - 1) * LANES + (j->row[0].context - 1) % LANES + 1;\n",
        "    int seen = c->keep * LANES;\n",
    ),
    pool.fault(
        "sketches are not copied with a page",
        "A row chooses by what a page held before.",
        "            self._sketches[:, block] = self._sketches[:, old_block]\n",
        "            pass\n",
    ),
    sequence.fault(
        "prompts are read in part",
        "A prompt's last token does not see all of it.",
        "        if self.planned > 1 or self.output_len == 0:\n",
        "        if self.planned > 1:\n",
    ),
    sequence.fault(
        "inexact tokens are noted too late",
        "The first token that read a part goes into a page of the cache.",
        "            self.exact_len = self.computed\n",
        "            self.exact_len = self.computed + self.planned\n",
    ),
    allotment.fault(
        "inexact pages are shared while it runs",
        "Others go on from tokens that saw a part of their context.",
        "        exact = sequence.exact(end)\n",
        "        exact = end\n",
    ),
    allotment.fault(
        "inexact pages are kept at its end",
        "The next turn goes on from tokens that saw a part of their context.",
        "        computed = sequence.exact(sequence.computed)\n",
        "        computed = sequence.computed\n",
    ),
    scheduler.fault(
        "what was computed again stays inexact",
        "After preemption nothing of a sequence is cached any more.",
        "        sequence.exact_len = None\n",
        "",
    ),
    setting.fault(
        "a wish wins over a worker that has it off",
        "Rows bring budgets to pools without bounds, and the step fails.",
        "        if not self.is_possible or mode is Mode.OFF or context <= budget:\n",
        "        if mode is Mode.OFF or context <= budget:\n",
    ),
    setting.fault(
        "auto looks at the length alone",
        "One long sequence is read in part where nobody waits for it.",
        "        pays = context >= self.from_tokens and num_decoding >= self.from_batch\n",
        "        pays = context >= self.from_tokens\n",
    ),
    runner.fault(
        "budgets stay behind",
        "dflash is on, and every row reads all.",
        "        return torch.from_numpy(budget) if budget.any() else None\n",
        "        return None\n",
    ),
)
