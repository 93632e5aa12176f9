"""The command line as a whole."""

from __future__ import annotations

import subprocess
import sys


def test_the_commands_are_there_before_anything_heavy_is_loaded() -> None:
    program = (
        "import sys; from loadtest.__main__ import app;"
        "sys.exit(bool({'torch', 'transformers', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
