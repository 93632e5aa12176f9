"""Logs for tests, written line by line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from loadtest.analysis.findings import Findings
from loadtest.analysis.study import Study, Wish
from loadtest.analysis.writing import BytePen

SYSTEM = "You help people who travel, and you never guess. Ask for dates, names and towns. " * 8


def written(folder: Path, lines: Iterable[object], name: str = "log.jsonl") -> Path:
    """The lines as a file; a text stays as it is."""
    told = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    data = ("\n".join(told) + "\n").encode()
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def chat(question: str, system: str = SYSTEM) -> dict[str, Any]:
    """A request's body."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return {"model": "m", "messages": messages}


def studied(path: Path, **more: Any) -> Findings:
    """What is found in it, without fleets unless they are asked for."""
    wish = Wish(path, BytePen(), **{"workers": (), **more})
    return Study(b"key", lambda _: None).of(wish)
