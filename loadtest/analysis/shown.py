"""Findings for a terminal: tables, then sentences."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.analysis.findings import Checkup, Findings, Fleets, Hot, SizePoint, Spread, Traffic


def show(findings: Findings, console: Console) -> None:
    """All of it is printed, what to do last."""
    for sentence in introduction(findings):
        console.print(sentence, markup=False, highlight=False)
    console.print(_lengths(findings))
    console.print(_sizes(findings.sizes))
    if findings.fleets is not None and findings.fleets.points:
        console.print(_fleets(findings.fleets))
    if findings.hot:
        console.print(_hot(findings.hot))
    if findings.checkup is not None:
        console.print(_reasons(findings.checkup))
        if findings.checkup.ailments:
            console.print(_ailments(findings.checkup))
    console.print("What to do", style="bold")
    for number, sentence in enumerate(findings.advice, 1):
        console.print(f"{number}. {sentence}", markup=False, highlight=False)


def introduction(findings: Findings) -> Iterator[str]:
    """What was read, and what of it is shared."""
    traffic, sharing = findings.traffic, findings.sharing
    yield _read(traffic)
    if traffic.broken:
        yield f"{traffic.broken:,} lines were left out, the first of them:"
        yield from (f"  line {one.line}: {one.reason}" for one in traffic.broken_lines)
    if traffic.backwards:
        yield (
            f"{traffic.backwards:,} requests are earlier than the one before them; the file's "
            "order counts."
        )
    yield (
        f"{sharing.shared_tokens:,} tokens ({sharing.share:.1%}) begin an earlier prompt, too; "
        f"in whole pages of {sharing.page_size}, "
        f"{sharing.paged_tokens:,} ({sharing.paged_share:.1%}). "
        f"Radix gains {sharing.shared_tokens - sharing.paged_tokens:,} tokens over blocks, in "
        f"{sharing.forks_inside:,} requests."
    )


def _read(traffic: Traffic) -> str:
    told = f"{traffic.file}: {traffic.requests:,} requests"
    if traffic.sessions:
        told += f" of {traffic.sessions:,} sessions (when they begin is made up)"
    if traffic.span_s is not None:
        told += f" in {traffic.span_s:,.0f} s"
    told += f", {traffic.prompt_tokens:,} prompt tokens ({traffic.counted}), "
    told += f"{traffic.distinct_tokens:,} of them distinct."
    if traffic.block:
        told += f" What is shared inside a block of {traffic.block} tokens is not seen."
    if not traffic.is_whole:
        told += f" This is the beginning of the log: {traffic.why_not}."
    return told


def _lengths(findings: Findings) -> Table:
    table = Table("tokens", "mean", "p10", "p50", "p90", "p99", "most", title="Lengths")
    for name, spread in (("prompt", findings.prompts), ("shared beginning", findings.shared)):
        table.add_row(name, *_cells(spread))
    return table


def _cells(spread: Spread) -> Iterator[str]:
    yield f"{spread.mean:,.0f}"
    for number in (spread.p10, spread.p50, spread.p90, spread.p99, spread.most):
        yield f"{number:,}"


def _sizes(points: list[SizePoint]) -> Table:
    title = "Hits of one cache (least recently used goes first)"
    table = Table("cache tokens", "radix", "block", "no rule beats", title=title)
    for one in points:
        rates = (one.radix, one.block, one.best)
        table.add_row(f"{one.cache_tokens:,}", *(f"{rate:.1%}" for rate in rates))
    return table


def _fleets(fleets: Fleets) -> Table:
    how = "as they came" if fleets.has_times else "at half of one worker's speed"
    title = f"Simulated fleets: {fleets.requests:,} requests {how}, {fleets.prefill_tokens_s:,.0f} "
    title += "prompt tokens a second each"
    columns = ("workers", "policy", "tokens each", "hits", "one cache", "max/mean", "busy")
    table = Table(*columns, title=title)
    for one in fleets.points:
        table.add_row(
            str(one.workers),
            one.policy,
            f"{one.cache_tokens:,}",
            f"{one.hits:.1%}",
            f"{one.pooled:.1%}",
            f"{one.imbalance:.2f}",
            f"{one.busy:.0%}",
        )
    return table


def _hot(hot: list[Hot]) -> Table:
    title = "Beginnings that save most"
    table = Table("from..to", "in", "requests", "saved tokens", "digest", title=title)
    by_parent: dict[int | None, list[Hot]] = {}
    for one in hot:
        by_parent.setdefault(one.inside, []).append(one)
    waiting = [(one, 0) for one in reversed(by_parent.get(None, []))]
    while waiting:
        one, depth = waiting.pop()
        waiting += [(child, depth + 1) for child in reversed(by_parent.get(one.number, []))]
        place = f"{'  ' * depth}{one.begin:,}..{one.end:,}"
        told = escape(f"{one.role} {one.text!r}" if one.text else one.role)
        table.add_row(place, told, f"{one.requests:,}", f"{one.saved_tokens:,}", one.digest)
    return table


def _reasons(checkup: Checkup) -> Table:
    table = Table("reason", "requests", title="The doctor, beside a cache that holds everything")
    for reason, count in checkup.reasons.items():
        table.add_row(reason, f"{count:,}")
    return table


def _ailments(checkup: Checkup) -> Table:
    table = Table(
        "reason", "at", "requests", "lost tokens", "e.g. request", title="Mend this first"
    )
    for one in checkup.ailments:
        cells = (f"{one.requests:,}", f"{one.lost_tokens:,}", f"{one.request:,}")
        table.add_row(one.reason, escape(one.place), *cells)
    return table
