"""`python -m loadtest.analysis LOG`: the same as `python -m loadtest analyze LOG`."""

from __future__ import annotations

import typer

from loadtest.analysis.command import run

if __name__ == "__main__":
    typer.run(run)
