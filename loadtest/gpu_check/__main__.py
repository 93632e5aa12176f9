"""`python -m loadtest.gpu_check [--rehearse] [--out FILE]`: a table, and the same as JSON.

Exit status: 0 when all that ran came out as it should, 1 when something was wrong or failed, 2
without a GPU. --rehearse runs all of it in tiny sizes on the CPU, to test the script itself.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

LIMIT_S = 450.0


def main() -> int:
    """Runs the check; returns the exit status."""
    arguments = _parser().parse_args()
    if arguments.rehearse:
        os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported
    from loadtest.gpu_check.check import run, run_part
    from loadtest.gpu_check.parts import Plan

    if arguments.part:
        return run_part(arguments.part, arguments.rehearse)
    return run(Plan(arguments.rehearse, arguments.limit_s), arguments.out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.gpu_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="for all parts together")
    parser.add_argument("--part", help="run one part in this process and print it as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
