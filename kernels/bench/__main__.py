"""`python -m kernels.bench [--threads N] [linear] [attention]` prints ratios to torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from kernels.bench import attention, linear

PARTS: dict[str, Callable[[int], Iterator[str]]] = {
    "linear": linear.compare,
    "attention": attention.compare,
}


def main() -> None:
    """Parses the command line and prints one line per comparison."""
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--threads", type=int, default=2, help="for both sides")
    arguments = parser.parse_args()
    for part in arguments.parts or PARTS:
        for line in PARTS[part](arguments.threads):
            print(line, flush=True)


if __name__ == "__main__":
    main()
