"""`python -m worker.model.prepare --model NAME_OR_PATH`: makes the model ready, prints its folder.

Run before several workers start, so that the conversion's cost and its errors come once.
Standard output carries the folder alone; exit status 1 and a sentence on standard error otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from worker.errors import ModelUnavailable
from worker.model.files import DEFAULT_MODEL, default_cache_folder, resolve


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m worker.model.prepare", description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="folder, .gguf file or default name")
    parser.add_argument("--cache-folder", type=Path, default=None, help="where conversions go")
    arguments = parser.parse_args()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            folder = resolve(arguments.model, arguments.cache_folder or default_cache_folder())
    except ModelUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    print(folder.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main())
