"""`python -m worker.model.planner`: the memory plan of a model or of numbers, for `pando plan`."""

from __future__ import annotations

import argparse
import sys

import msgspec

from worker.errors import ModelUnavailable
from worker.model.footprint import described
from worker.model.memory_plan import BadPlan, plan, wanted_of


def main() -> int:
    """Prints the plan of the model or numbers that are named as one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m worker.model.planner", description=__doc__)
    parser.add_argument("--model", help="folder with config.json, .gguf file or default name")
    for name in ("parameters", "layers", "kv-heads", "head-dim", "memory"):
        parser.add_argument(f"--{name}", type=int)
    for name, default in (("context", 4096), ("concurrency", 16), ("shared", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--dflash", action="store_true")
    told = {name: one for name, one in vars(parser.parse_args()).items() if one is not None}
    try:
        model = told.pop("model", None)
        wanted = wanted_of(described(model) if model else {}, told)
        print(msgspec.json.encode({"model": wanted, "plan": plan(wanted)}).decode())
    except (BadPlan, ModelUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
