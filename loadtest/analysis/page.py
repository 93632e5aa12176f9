"""Findings as one HTML file: no script, nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from loadtest.analysis.findings import Findings, Fleets
from loadtest.analysis.pictures import Column, Line, Point, bars, lines, short
from loadtest.analysis.shown import introduction

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd }
.words { text-align: left } .wide { overflow-x: auto }
svg { max-width: 44rem; font: 11px system-ui, sans-serif } .grid { stroke: #ddd }
"""
# A cell that is a quantity; all other columns hold words.
_QUANTITY = re.compile(r"[\d.,]+%?")
_WORDS = ' class="words"'


def page(findings: Findings) -> str:
    """The whole file."""
    title = f"Analysis of {findings.traffic.file}"
    parts = [
        *(f"<p>{escape(one)}</p>" for one in introduction(findings)),
        "<h2>What to do</h2>",
        f"<ol>{''.join(f'<li>{_sentence(one)}</li>' for one in findings.advice)}</ol>",
        "<h2>Hits by cache size</h2>",
        _sizes(findings),
        "<h2>Lengths</h2>",
        _lengths(findings),
    ]
    if findings.fleets is not None and findings.fleets.points:
        parts += ["<h2>Fleets</h2>", _fleets(findings.fleets)]
    parts += ["<h2>Beginnings that save most</h2>", _hot(findings), *_checkup(findings)]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{''.join(parts)}</body></html>"
    )


def _sizes(findings: Findings) -> str:
    points = findings.sizes
    drawn = [
        Line("radix", [Point(one.cache_tokens, one.radix) for one in points]),
        Line("block", [Point(one.cache_tokens, one.block) for one in points]),
        Line("no rule beats", [Point(one.cache_tokens, one.best) for one in points], True),
    ]
    rows = [
        [f"{one.cache_tokens:,}", f"{one.radix:.1%}", f"{one.block:.1%}", f"{one.best:.1%}"]
        for one in points
    ]
    told = _table(["cache tokens", "radix", "block", "no rule beats"], rows)
    return (lines("Hits by cache size", drawn, "tokens of the cache") if points else "") + told


def _lengths(findings: Findings) -> str:
    total = findings.traffic.requests
    columns = [
        Column(short(one.up_to), [one.prompts / total, one.shared / total])
        for one in findings.lengths
    ]
    rows = [
        [name, *(f"{one:,}" for one in (spread.p10, spread.p50, spread.p90, spread.p99))]
        for name, spread in (("prompt", findings.prompts), ("shared", findings.shared))
    ]
    drawn = bars("Lengths", columns, ("prompts", "shared beginnings"), "tokens, up to")
    return drawn + _table(["", "p10", "p50", "p90", "p99"], rows)


def _fleets(fleets: Fleets) -> str:
    policies = list(dict.fromkeys(one.policy for one in fleets.points))
    columns = []
    for workers in sorted({one.workers for one in fleets.points}):
        found = {one.policy: one for one in fleets.points if one.workers == workers}
        heights = [found[name].hits if name in found else 0.0 for name in policies]
        pooled = max(one.pooled for one in found.values())
        columns.append(Column(str(workers), [*heights, pooled]))
    rows = [
        [
            str(one.workers),
            one.policy,
            f"{one.cache_tokens:,}",
            f"{one.hits:.1%}",
            f"{one.pooled:.1%}",
            f"{one.imbalance:.2f}",
            f"{one.busy:.0%}",
        ]
        for one in fleets.points
    ]
    names = ["workers", "policy", "tokens each", "hits", "one cache", "max/mean", "busy"]
    return bars("Fleets", columns, (*policies, "one cache"), "workers") + _table(names, rows)


def _hot(findings: Findings) -> str:
    rows = [
        [
            f"{one.begin:,}..{one.end:,}",
            one.role,
            one.text,
            f"{one.requests:,}",
            f"{one.saved_tokens:,}",
            one.digest,
        ]
        for one in findings.hot
    ]
    return _table(["from..to", "in", "begins", "requests", "saved tokens", "digest"], rows)


def _checkup(findings: Findings) -> Iterable[str]:
    if findings.checkup is None:
        return
    reasons = [[name, f"{count:,}"] for name, count in findings.checkup.reasons.items()]
    yield "<h2>The doctor</h2>" + _table(["reason", "requests"], reasons)
    rows = [
        [one.reason, one.place, f"{one.requests:,}", f"{one.lost_tokens:,}", one.sentence]
        for one in findings.checkup.ailments
    ]
    if rows:
        yield "<h2>Mend this first</h2>"
        yield _table(["reason", "at", "requests", "lost tokens", "what to do"], rows)


def _sentence(text: str) -> str:
    """What stands in backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Quantities stand to the right, words to the left; a column in which nothing is stands not."""
    columns = [[name, *(row[at] for row in rows)] for at, name in enumerate(names)]
    columns = [one for one in columns if any(one[1:]) or not rows]
    marks = ["" if all(map(_QUANTITY.fullmatch, one[1:])) else _WORDS for one in columns]
    lines = [
        "".join(
            f"<{kind}{mark}>{escape(cell)}</{kind}>"
            for mark, cell in zip(marks, cells, strict=True)
        )
        for kind, cells in zip(
            ("th", *("td" for _ in rows)), zip(*columns, strict=True), strict=True
        )
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table>{body}</table></div>'
