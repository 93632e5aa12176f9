"""`pando analyze LOG`: what a prefix cache would have of a log; a program of its own says it."""

from __future__ import annotations

import os
import subprocess
import sys

import typer

from pando.up import ROOT

# Everything behind the name is the program's, --help too.
SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
PROGRAM = ("-m", "loadtest.analysis")


def analyze(context: typer.Context) -> None:
    """Say of a log what a prefix cache would have: shared tokens, hits by size, what to mend."""
    raise typer.Exit(run_beside(PROGRAM, context.args))


def run_beside(program: tuple[str, ...], words: list[str]) -> int:
    """Returns the exit status of one of our programs, run where the user is, on the user's screen.

    Our packages are found in the checkout, and nothing in the user's folder in place of them.
    """
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-P", *program, *words]
    status = subprocess.run(command, env=environment, check=False).returncode
    return status if status >= 0 else 128 - status
