"""A run as one HTML page that needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from loadtest.load.compared import Comparison
from loadtest.load.figures import Figures, Slo, Spread
from loadtest.load.samples import Head
from loadtest.report import number

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
  color: #222; }
table { border-collapse: collapse; margin: 0.6rem 0 1.4rem; }
th, td { border-bottom: 1px solid #ddd; padding: 0.25rem 0.8rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
"""
_NONE = "-"
_CAPTIONS = {
    "times": "How many of the answers came within which time.",
    "course": "Every request over when it was sent: its first token, its cached share.",
    "hits": "What came from caches beside an unlimited one's; what each worker computed and made.",
    "tenants": "Each tenant's time to first token and hits.",
    "ratios": "B over A: each round a point, the median in words.",
}


def page(
    head: Head,
    figures: Mapping[str, Figures],
    pictures: Mapping[str, str],
    comparison: Comparison | None,
    slo: Slo,
) -> str:
    """Returns the whole document."""
    title = f"Load test: {head.workload}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        _table(("setting", "value"), _settings(head, slo)),
        *(_side(side, one) for side, one in figures.items()),
        _compared(comparison) if comparison is not None else "",
        *(_picture(name, svg) for name, svg in pictures.items()),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{chr(10).join(parts)}\n</body></html>\n"
    )


def _settings(head: Head, slo: Slo) -> list[Sequence[str]]:
    rows = [("seed", str(head.seed)), *head.settings.items()]
    rows += [(f"target {side}", url) for side, url in head.targets.items()]
    rows += [("SLO: first token", _seconds(slo.ttft_s)), ("SLO: per token", _seconds(slo.tpot_s))]
    return [list(row) for row in rows]


def _side(side: str, one: Figures) -> str:
    spreads = {
        "time to first token": one.ttft,
        "time per further token": one.tpot,
        "between two events": one.itl,
        "end to end": one.end_to_end,
        "sent behind its time": one.late,
    }
    times = _table(
        ("", "count", "mean", "p50", "p90", "p99"),
        [(name, *_spread(found)) for name, found in spreads.items()],
    )
    return f"<h2>{escape(side)}</h2>{_table(('', ''), _facts(one))}{times}{_more(one)}"


def _facts(one: Figures) -> list[Sequence[str]]:
    facts = {
        "requests": number(one.requests),
        "answered whole": number(one.good),
        "within the SLO": number(one.within_slo),
        "seconds": number(one.seconds),
        "requests per second": number(one.requests_per_s),
        "goodput, requests per second": number(one.goodput_per_s),
        "output tokens per second": number(one.output_tokens_per_s),
        "prompt tokens per second": number(one.prompt_tokens_per_s),
        "hit rate": _share(one.hit_rate),
        "hit rate of an unlimited cache": _share(one.oracle),
        "busiest worker over the mean": _NONE if one.balance is None else number(one.balance),
    }
    facts |= {f"failed: {sentence}": str(count) for sentence, count in one.errors.items()}
    return list(facts.items())


def _more(one: Figures) -> str:
    workers = [
        (name, str(work.requests), f"{work.computed_tokens:,}", f"{work.output_tokens:,}")
        for name, work in one.workers.items()
    ]
    tenants = [
        (
            name or _NONE,
            str(own.requests),
            str(own.within_slo),
            _seconds(own.ttft.p50),
            _seconds(own.ttft.p99),
            _share(own.hit_rate),
            _share(own.oracle),
        )
        for name, own in one.tenants.items()
    ]
    found = ""
    if workers:
        found += _table(("worker", "requests", "prompt tokens computed", "tokens made"), workers)
    if tenants:
        columns = ("tenant", "requests", "within the SLO", "TTFT p50", "p99", "hits", "unlimited")
        found += _table(columns, tenants)
    return found


def _compared(one: Comparison) -> str:
    rows: list[Sequence[str]] = [
        (name, *(f"{value:.3g}" for value in (ratio.least, ratio.median, ratio.largest)))
        for name, ratio in one.by_round.items()
    ]
    rows += [
        (f"{name}, median over {one.num_pairs} pairs", _NONE, f"{value:.3g}", _NONE)
        for name, value in one.by_request.items()
    ]
    if one.hit_rate_difference is not None:
        rows.append(("hit rate, B minus A", _NONE, f"{one.hit_rate_difference:+.3f}", _NONE))
    return f"<h2>B over A</h2>{_table(('', 'least', 'median', 'largest'), rows)}"


def _picture(name: str, svg: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(_CAPTIONS[name])}</figcaption></figure>"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in columns)
    cells = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows
    )
    return f"<table><tr>{heads}</tr>\n{cells}</table>\n"


def _spread(one: Spread) -> list[str]:
    return [str(one.count), *(_seconds(value) for value in (one.mean, one.p50, one.p90, one.p99))]


def _seconds(value: float | None) -> str:
    return _NONE if value is None else f"{value:.4g} s"


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{value:.1%}"
