"""What the tests of the page play with: a clock, lives, workers that hold some boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.fleet.workers import Worker, WorkerInfo
from gateway.telemetry.lives import Beginning, Life
from tests.gateway.conftest import NoDoor


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def digest(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def life(names: str, tenant: str = "acme", **fields: Any) -> Life:
    """A request whose prompt begins with one boundary per letter."""
    digests = tuple(digest(names[: end + 1]) for end in range(len(names)))
    roles = ("system", *["user", "assistant"] * len(names))[: len(names)]
    known: dict[str, Any] = {
        "request_id": f"req-{names}",
        "tenant": tenant,
        "model": "tiny",
        "route": "chat_completions",
        "began": 90.0,
        "ended": 95.0,
        "status": 200,
        "outcome": "finished",
        "beginning": Beginning(digests, roles),
    }
    return Life(**{**known, **fields})


def worker(name: str, held: Sequence[tuple[str, int]] = (), **info: Any) -> Worker:
    made = Worker(WorkerInfo(name, "first", "tiny", **info), NoDoor())
    for names, num_tokens in held:
        made.view.store(digest(names), num_tokens)
    return made
