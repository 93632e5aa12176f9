"""The seeds' ladder on this machine: no cache, radix, radix + dflash, and regrouped by prefix.

The same chats in the same order go to each rung, all at once, to one gateway and one worker:

    |<- system prompt of one of several groups ->|<- own question ->|  -> answers of one length

Clients mix the groups by chance. The pool has room for what runs and a little more, not for all
system prompts, so what is not asked for soon is evicted. On the first three rungs the gateway keeps
the clients' order; on the last it sends what shares a system prompt together, as it does by itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.load.bench import PAGE_SIZE, Stand, standing
from loadtest.load.prompt import Conversation, Prompt
from loadtest.report import Report
from loadtest.words import sentence

NAME = "ladder"
COLUMNS = ("rung", "hit rate", "output tokens/s", "all tokens/s", "K/V in use", "resident")
OFF, RADIX, DFLASH, REGROUPED = "off", "radix", "radix + dflash", "radix + dflash, regrouped"
# So soon is the oldest request late that the order of arrival is kept; and never.
IN_ORDER = "queue: {bypass_s: 0.0001, max_wait_s: 3600}\n"
BY_PREFIX = "queue: {bypass_s: 3600, max_wait_s: 3600}\n"
_EIGHT_BITS = ("--dflash", "on", "--kv-cache-dtype", "int8")


@dataclass(frozen=True, slots=True)
class Shape:
    """groups of `members` chats. running: sequences at a time. room: groups that fit besides."""

    groups: int = 8
    members: int = 4
    prefix_tokens: int = 2048
    own_tokens: int = 48
    output_tokens: int = 40
    running: int = 4
    room: float = 1.0
    dflash_budget: int = 512
    threads: int = 2
    seed: int = 0

    @property
    def pool_tokens(self) -> int:
        """Whole pages for what runs, each alone, and for `room` more system prompts."""
        template = 48
        each = self.prefix_tokens + self.own_tokens + self.output_tokens + template
        tokens = self.running * each + round(self.room * self.prefix_tokens)
        return -(-tokens // PAGE_SIZE) * PAGE_SIZE


QUICK = Shape(groups=4, members=3, prefix_tokens=400, output_tokens=8, running=2, dflash_budget=128)


@dataclass(frozen=True, slots=True)
class Rung:
    """What one rung gave."""

    name: str
    hit_rate: float
    output_tokens_per_s: float
    tokens_per_s: float
    kv_bytes: int
    resident_bytes: int


def chats(shape: Shape) -> list[Conversation]:
    """Returns the chats in the clients' order."""
    rng = random.Random(shape.seed)
    made: list[Conversation] = []
    for group in range(shape.groups):
        system = {"role": "system", "content": sentence(rng, shape.prefix_tokens)}
        for member in range(shape.members):
            question = {"role": "user", "content": sentence(rng, shape.own_tokens)}
            body = {"messages": [system, question]}
            made.append((Prompt(f"{group}-{member}", 0, "", body, shape.output_tokens),))
    rng.shuffle(made)
    return made


def stands(model: str, shape: Shape) -> dict[str, Stand]:
    """Returns what each rung starts, from the bottom up."""
    flags = ("--max-running-sequences", str(shape.running), "--order", "first_come")
    sparse = (*flags, *_EIGHT_BITS, "--dflash-budget", str(shape.dflash_budget))
    room = f"{shape.pool_tokens} tokens"
    return {
        OFF: Stand(model, "off", room, shape.threads, flags, IN_ORDER),
        RADIX: Stand(model, "radix", room, shape.threads, flags, IN_ORDER),
        DFLASH: Stand(model, "radix", room, shape.threads, sparse, IN_ORDER),
        REGROUPED: Stand(model, "radix", room, shape.threads, sparse, BY_PREFIX),
    }


def measure(model: str, shape: Shape, progress: Callable[[str], None]) -> list[Rung]:
    """Returns the rungs from the bottom up. Raises LoadTestError."""
    found = []
    for name, stand in stands(model, shape).items():
        progress(f"rung: {name}")
        with standing(stand) as bench:
            sent = chats(shape)
            told = asyncio.run(bench.measure(sent, len(sent)))
            found.append(
                Rung(
                    name,
                    told.hit_rate or 0.0,
                    told.output_tokens_per_s,
                    told.output_tokens_per_s + told.prompt_tokens_per_s,
                    bench.kv_bytes,
                    bench.resident_bytes,
                )
            )
    return found


def report(rungs: Sequence[Rung]) -> Report:
    """Returns the ladder, and how its rungs stand to one another."""
    by_name = {rung.name: rung for rung in rungs}
    radix = by_name[RADIX]
    summary = {
        "radix_over_off": radix.output_tokens_per_s / by_name[OFF].output_tokens_per_s,
        "dflash_memory_ratio": by_name[DFLASH].kv_bytes / radix.kv_bytes,
        "regrouped_over_radix": by_name[REGROUPED].output_tokens_per_s / radix.output_tokens_per_s,
        "radix_hit": radix.hit_rate,
        "dflash_hit": by_name[DFLASH].hit_rate,
        "regrouped_hit": by_name[REGROUPED].hit_rate,
    }
    return Report(NAME, COLUMNS, [_row(rung) for rung in rungs], summary)


def _row(rung: Rung) -> list[str]:
    return [
        rung.name,
        f"{rung.hit_rate:.0%}",
        f"{rung.output_tokens_per_s:.1f}",
        f"{rung.tokens_per_s:,.0f}",
        f"{rung.kv_bytes / 2**20:,.0f} MiB",
        f"{rung.resident_bytes / 2**20:,.0f} MiB",
    ]


def draw(rungs: Sequence[Rung], path: Path) -> None:
    """Draws throughput, hits and memory of each rung, as SVG or PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 2.8), layout="constrained")
    panels: dict[str, Callable[[Rung], float]] = {
        "output tokens/s": lambda rung: rung.output_tokens_per_s,
        "hit rate, %": lambda rung: rung.hit_rate * 100,
        "K/V in use, MiB": lambda rung: rung.kv_bytes / 2**20,
        "resident, MiB": lambda rung: rung.resident_bytes / 2**20,
    }
    names = [rung.name for rung in rungs]
    for axes, (title, value) in zip(
        figure.subplots(1, 4, sharey=True), panels.items(), strict=True
    ):
        bars = axes.barh(names, [value(rung) for rung in rungs], color="#1f6f8b")
        axes.bar_label(bars, fmt="%.0f", padding=2)
        axes.set(xlabel=title)
        axes.margins(x=0.18)
    figure.axes[0].invert_yaxis()
    figure.savefig(path, metadata={"Date": None})
