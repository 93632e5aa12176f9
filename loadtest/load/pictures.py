"""A run in pictures, each as SVG text: times, course, hits and balance, tenants, ratios."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from loadtest.load.compared import Comparison
from loadtest.load.figures import Figures
from loadtest.load.samples import Sample

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#1f6f8b", "#d1693f", "#5b8c3a", "#8a5a9e")
_GRID = 0.3


def drawn(
    samples: Mapping[str, Sequence[Sample]],
    figures: Mapping[str, Figures],
    comparison: Comparison | None,
) -> dict[str, str]:
    """Returns the pictures by name, both arguments by side; those without data are left out."""
    pictures = {
        "times": _svg(lambda figure: _times(figure, samples), (11, 3.4), "times"),
        "course": _svg(lambda figure: _course(figure, samples), (11, 3.4), "course"),
        "hits": _svg(lambda figure: _hits(figure, figures), (11, 3.2), "hits"),
    }
    if any(one.tenants for one in figures.values()):
        pictures["tenants"] = _svg(lambda figure: _tenants(figure, figures), (11, 3.4), "tenants")
    if comparison is not None and comparison.by_round:
        pictures["ratios"] = _svg(lambda figure: _ratios(figure, comparison), (11, 3.0), "ratios")
    return pictures


def _svg(draw: Callable[[Figure], None], size: tuple[float, float], name: str) -> str:
    """Returns an `svg` element; name: keeps its ids apart from those of others on one page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _times(figure: Figure, samples: Mapping[str, Sequence[Sample]]) -> None:
    """How many answers came within which time."""
    measures: Mapping[str, Callable[[Sample], float | None]] = {
        "time to first token, s": lambda one: one.ttft_s,
        "time per further token, s": lambda one: one.tpot_s,
        "end to end, s": lambda one: one.end_s,
    }
    for axes, (title, measure) in zip(figure.subplots(1, 3), measures.items(), strict=True):
        for colour, (side, own) in zip(_COLOURS, samples.items(), strict=False):
            found = [measure(one) for one in own if one.is_good]
            values = sorted(value for value in found if value is not None)
            shares = [(number + 1) / len(values) for number in range(len(values))]
            axes.step(values, shares, where="post", color=colour, label=side)
        axes.set(xlabel=title, ylabel="share of answers", ylim=(0, 1.02))
        _finish(axes)


def _course(figure: Figure, samples: Mapping[str, Sequence[Sample]]) -> None:
    """What became of each request, over when it was sent."""
    left, right = figure.subplots(1, 2)
    for colour, (side, own) in zip(_COLOURS, samples.items(), strict=False):
        good = [one for one in own if one.is_good and one.ttft_s is not None]
        left.plot(*_points(good, lambda one: one.ttft_s or 0.0), ".", color=colour, label=side)
        told = [one for one in own if one.cached_tokens is not None and one.prompt_tokens]
        share = _points(told, lambda one: (one.cached_tokens or 0) / (one.prompt_tokens or 1))
        right.plot(*share, ".", color=colour, label=side)
    left.set(xlabel="sent at, s of its round", ylabel="time to first token, s")
    right.set(xlabel="sent at, s of its round", ylabel="cached share of the prompt", ylim=(0, 1))
    _finish(left)
    _finish(right)


def _points(
    samples: Sequence[Sample], measure: Callable[[Sample], float]
) -> tuple[list[float], list[float]]:
    return [one.at_s for one in samples], [measure(one) for one in samples]


def _hits(figure: Figure, figures: Mapping[str, Figures]) -> None:
    """Hits beside the oracle's, and what each worker had to do."""
    left, right = figure.subplots(1, 2)
    names, values = [], []
    for side, one in figures.items():
        for word, value in (("told", one.hit_rate), ("unlimited cache", one.oracle)):
            if value is not None:
                names.append(f"{side} {word}")
                values.append(value)
    left.barh(names, values, color=_COLOURS[0])
    left.set(xlabel="cached share of all prompt tokens", xlim=(0, 1))
    loads = {
        f"{side} {name}": work.computed_tokens + work.output_tokens
        for side, one in figures.items()
        for name, work in one.workers.items()
    }
    right.barh(list(loads), list(loads.values()), color=_COLOURS[2])
    right.set(xlabel="tokens computed and made, by worker")
    _finish(left)
    _finish(right)


def _tenants(figure: Figure, figures: Mapping[str, Figures]) -> None:
    """Time to first token and hits of each tenant."""
    left, right = figure.subplots(1, 2)
    for colour, (side, one) in zip(_COLOURS, figures.items(), strict=False):
        names = list(one.tenants)
        for share, marker in (("p50", "o"), ("p99", "x")):
            times = [getattr(own.ttft, share) or 0.0 for own in one.tenants.values()]
            left.plot(times, names, marker, color=colour, label=f"{side} {share}")
        hits = [own.hit_rate or 0.0 for own in one.tenants.values()]
        right.plot(hits, names, "o", color=colour, label=side)
    left.set(xlabel="time to first token, s")
    right.set(xlabel="cached share of prompt tokens", xlim=(-0.02, 1.02))
    _finish(left)
    _finish(right)


def _ratios(figure: Figure, comparison: Comparison) -> None:
    """B over A, every round a point."""
    axes = figure.subplots()
    for place, (name, ratio) in enumerate(comparison.by_round.items()):
        axes.plot([ratio.least, ratio.largest], [place, place], color=_COLOURS[0])
        axes.plot(ratio.rounds, [place] * len(ratio.rounds), "o", color=_COLOURS[1])
        axes.annotate(f"{name} {ratio.median:.3g}", (ratio.largest, place + 0.12))
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set(xlabel="B over A", yticks=[], ylim=(-0.5, len(comparison.by_round)))
    axes.grid(visible=True, alpha=_GRID)


def _finish(axes: Axes) -> None:
    axes.grid(visible=True, alpha=_GRID)
    if axes.get_legend_handles_labels()[1]:
        axes.legend()
