"""python -m tests.planted [--only NAME] [--jobs 1]: exit 1 when too many faults are missed."""

from __future__ import annotations

import argparse
import sys

from tests.planted import run
from tests.planted.faults import FAULTS

LEAST = 0.95


def main() -> int:
    """Tries the faults and prints a line for each; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted")
    parser.add_argument("--only", metavar="NAME", help="faults whose name has this in it")
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    chosen = [one for one in FAULTS if asked.only is None or asked.only in one.name]
    if not chosen:
        parser.error(f"no fault has {asked.only!r} in its name")
    caught = 0
    for outcome in run.tried(chosen, asked.jobs):
        caught += outcome.caught_by is not None
        verdict = "MISSED" if outcome.caught_by is None else "caught"
        by = outcome.caught_by or outcome.fault.says
        print(f"{verdict}  {outcome.fault.name:48} {outcome.seconds:4.0f} s  {by}", flush=True)
    rate = caught / len(chosen)
    print(f"planted: faults={len(chosen)} caught={caught} kill_rate={rate:.2f}")
    return 0 if rate >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
