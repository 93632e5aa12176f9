"""transformers' continuous batching (`generate_batch`, paged, shares full pages) on given prompts.

`python -m loadtest.peers.generate_batch FOLDER THREADS MAX_TOKENS < prompts.json` prints one JSON
line: wall and CPU seconds of the generation, and the tokens that each prompt got. One short batch
runs first, so that neither loading nor first-use costs are counted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def main() -> None:
    """Generates and prints the figures."""
    folder, threads, max_tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    prompts = json.load(sys.stdin)
    os.environ |= {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    ).eval()
    config = GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    generate(model, [prompts[0][:8]], config)
    wall, cpu = time.perf_counter(), time.process_time()
    made = generate(model, prompts, config)
    figures = {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "tokens": made,
    }
    print(json.dumps(figures))


def generate(model: Any, prompts: list[list[int]], config: Any) -> list[list[int]]:
    """Returns each prompt's new tokens, in the order of the prompts."""
    results = model.generate_batch(inputs=prompts, generation_config=config, progress_bar=False)
    return [list(result.generated_tokens) for result in results.values()]


if __name__ == "__main__":
    main()
