"""transformers' `generate` on batches of prompts: padded on the left, with its K/V cache.

`python -m loadtest.peers.generate FOLDER THREADS < jobs.json` reads a list of
{"prompts": [[id, ...], ...], "new_tokens": n} and prints one JSON line with as many results. One
short batch runs first, so that neither loading nor first-use costs are counted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

PAD = 0


def main() -> None:
    """Generates each job's batch and prints the figures."""
    folder, threads = sys.argv[1], int(sys.argv[2])
    jobs = json.load(sys.stdin)
    os.environ |= {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    made = [generated(model, jobs[0]["prompts"], 2)]
    made = [generated(model, job["prompts"], job["new_tokens"]) for job in jobs]
    for one in made:
        one["texts"] = [tokenizer.decode(ids, skip_special_tokens=True) for ids in one["tokens"]]
    print(json.dumps(made))


def generated(model: Any, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
    """Returns wall, decode and CPU seconds, and each prompt's new tokens.

    decode_s: from the end of the step that made the first tokens to the end of the last one.
    """
    import torch

    stamps: list[float] = []

    def note(ids: Any, _: Any, **__: Any) -> Any:
        stamps.append(time.perf_counter())
        return torch.zeros(ids.shape[0], dtype=torch.bool)

    longest = max(map(len, prompts))
    padded = [[PAD] * (longest - len(one)) + one for one in prompts]
    seen = [[0] * (longest - len(one)) + [1] * len(one) for one in prompts]
    wall, cpu = time.perf_counter(), time.process_time()
    out = model.generate(
        input_ids=torch.tensor(padded),
        attention_mask=torch.tensor(seen),
        max_new_tokens=new_tokens,
        do_sample=False,
        use_cache=True,
        eos_token_id=-1,
        pad_token_id=PAD,
        stopping_criteria=[note],
    )
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "decode_s": stamps[-1] - stamps[0],
        "tokens": out[:, longest:].tolist(),
    }


if __name__ == "__main__":
    main()
