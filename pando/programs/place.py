"""Where in the user's program something is asked; mistakes are told with that line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pando.errors import BadProgram

# The library's own files, and Python's.
_PASSED = (str(Path(__file__).parent), str(Path(os.__file__).parent))


def user_place() -> str:
    """`file.py, line 12`: the innermost line that is neither the library's nor Python's own."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PASSED) and frame.f_back is not None:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"


def mistake(sentence: str) -> BadProgram:
    """An error about what the user's program says at this line."""
    return BadProgram(f"{sentence} ({user_place()})")
