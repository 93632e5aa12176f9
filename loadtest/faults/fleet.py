"""Faults of the fleet and not of the prompt: a case for each, and what has to happen in it.

A case names the model that it asks for, since each kind has workers of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from loadtest.faults.planted import RENAME, RESTART, TWIN, Case, Sent, chat, text
from loadtest.faults.words import Writer

# Models of fake workers: two that take their time and are begun anew, one without a cache.
SLOW, BARE = "slow-model", "bare-model"
# A prompt that begins so takes a slow worker a third of a second.
_LONG = "10000: "
# Of those that take time there are fewer: one of so many.
TWINS_EVERY = 4
_SHORT = "abcdefghijklmnopqrstuvwxyz"


def restarted(writer: Writer) -> Case:
    """The worker that has it begins anew."""
    sent = _to(SLOW, chat(writer.system(), writer.talk(writer.rng.choice((0, 1)))))
    return Case("restarted", ("restarted",), sent, (sent,), "elsewhere", RESTART)


def namespace_changed(writer: Writer) -> Case:
    """The tenant gets another namespace."""
    sent = chat(writer.system(), writer.talk(writer.rng.choice((0, 1))))
    return Case("namespace_changed", ("namespace_changed",), sent, (sent,), "moved", RENAME)


def still_computing(writer: Writer) -> Case:
    """Two ask at once for what no cache has; workers take turns."""
    sent = _to(SLOW, chat(f"{_LONG}{writer.system()}", writer.talk(0)))
    return Case("still_computing", ("still_computing",), sent, (sent,), "in_turn", TWIN)


def too_short(writer: Writer) -> Case:
    """A word, twice: the last token of a prompt is always computed."""
    word = "".join(writer.rng.choices(_SHORT, k=4))
    if writer.rng.random() < 0.3:
        return Case("too_short", ("too_short",), text(word), (text(word),))
    sent = chat(None, [{"role": "user", "content": word}])
    return Case("too_short", ("too_short",), sent, (sent,))


def cache_off(writer: Writer) -> Case:
    """The worker has no cache, whatever it is asked."""
    sent = _to(BARE, chat(writer.system(), writer.talk(0)))
    return Case("cache_off", ("cache_off",), sent, (), "elsewhere")


MAKERS: dict[str, Callable[[Writer], Case]] = {
    "restarted": restarted,
    "namespace_changed": namespace_changed,
    "still_computing": still_computing,
    "too_short": too_short,
    "cache_off": cache_off,
}


def cases(count: int, seed: int) -> list[Case]:
    """So many of each kind, a part of that where each takes its time; the same for one seed."""
    rng = random.Random(f"fleet {seed}")
    counts = dict.fromkeys(MAKERS, count) | {"still_computing": -(-count // TWINS_EVERY)}
    return [
        MAKERS[name](Writer(random.Random(rng.getrandbits(64))))
        for name, number in counts.items()
        for _ in range(number)
    ]


def _to(model: str, sent: Sent) -> Sent:
    return replace(sent, body={**sent.body, "model": model})
