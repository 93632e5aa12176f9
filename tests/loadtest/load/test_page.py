"""The page stands alone, with every figure and picture in it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from loadtest.load.figures import Slo
from loadtest.load.page import page
from loadtest.load.pictures import drawn
from loadtest.load.runs import keep, report, told
from loadtest.load.samples import Head, Sample, by_side, read
from loadtest.report import summary_line
from tests.loadtest.load.test_compared import both
from tests.loadtest.load.test_figures import many

HEAD = Head(
    workload="chat <b>",
    seed=3,
    settings={"rate": "<b>2.0"},
    targets={"A": "http://a", "B": "http://b"},
)
SLO = Slo(0.4, 0.06)


class Links(HTMLParser):
    """What a browser would fetch, and the tags that do."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "iframe", "img", "object", "embed", "base"):
            self.fetched.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data") and not (value or "").startswith("#"):
                self.fetched.append(f"{name}={value}")
            if "url(" in (value or ""):
                assert value is not None
                self.fetched += [one for one in re.findall(r"url\((.)", value) if one != "#"]


def whole(samples: list[Sample]) -> str:
    found = told(samples, SLO)
    pictures = drawn(by_side(samples), found.figures, found.comparison)
    return page(HEAD, found.figures, pictures, found.comparison, SLO)


def links(document: str) -> list[str]:
    parser = Links()
    parser.feed(document)
    return parser.fetched


@pytest.fixture(scope="module")
def document() -> str:
    """The page of two sides."""
    pair = both()
    return whole(pair.a + pair.b)


def test_nothing_is_fetched_from_elsewhere(document: str) -> None:
    assert links(document) == []
    assert "@import" not in document
    assert links('<img src="http://x"><a href="#y"></a><g clip-path="url(http://z)"/>') == [
        "img",
        "src=http://x",
        "h",
    ]


def test_every_figure_is_on_the_page(document: str) -> None:
    pair = both()
    found = told(pair.a + pair.b, SLO)
    assert document.count("<svg") == 5
    for one in found.figures.values():
        times = (one.ttft, one.tpot, one.itl, one.end_to_end, one.late)
        for value in (
            t for spread in times for t in (spread.mean, spread.p50, spread.p90, spread.p99)
        ):
            assert f"<td>{value:.4g} s</td>" in document
        for rate in (one.hit_rate, one.oracle):
            assert f"<td>{rate:.1%}</td>" in document
        for fact in (one.requests, one.good, one.within_slo):
            assert f"<td>{fact}</td>" in document
        for name, work in one.workers.items():
            assert f"<td>{name}</td><td>{work.requests}</td>" in document
        assert all(f"<td>{name}</td>" in document for name in one.tenants)
        assert all(f"<td>failed: {name}</td>" in document for name in one.errors)
    assert found.comparison is not None
    for name, ratio in found.comparison.by_round.items():
        assert f"<td>{name}</td><td>{ratio.least:.3g}</td><td>{ratio.median:.3g}</td>" in document
    assert "chat &lt;b&gt;" in document
    assert "&lt;b&gt;2.0" in document
    assert "<b>" not in document


def test_one_side_has_no_comparison_and_one_tenant_no_table_of_tenants() -> None:
    alone = [msgspec.structs.replace(one, tenant="") for one in many(20)]
    document = whole(alone)
    assert document.count("<svg") == 3
    assert "B over A" not in document


def test_failures_only_still_make_a_page() -> None:
    failed = [Sample(conversation="c", at_s=0.0, end_s=1.0, status=503, error="busy")]
    assert "failed: HTTP 503" in whole(failed)


def test_pictures_are_the_same_for_the_same_samples() -> None:
    samples = many(20)
    found = told(samples, SLO)
    first, second = (drawn(by_side(samples), found.figures, None) for _ in range(2))
    assert first == second


def test_the_folder_holds_raw_samples_from_which_all_can_be_told_again(tmp_path: Path) -> None:
    pair = both()
    samples = pair.a + pair.b
    found = keep(tmp_path / "out", HEAD, samples, SLO)
    recording = read(tmp_path / "out" / "samples.jsonl")
    assert recording.head == HEAD
    assert list(recording.samples) == samples
    assert told(recording.samples, SLO) == found
    said = msgspec.json.decode((tmp_path / "out" / "figures.json").read_bytes())
    assert said["figures"]["A"]["ttft"]["p99"] == pytest.approx(found.figures["A"].ttft.p99)
    assert said["comparison"]["by_round"]["ttft_p50"]["median"] == pytest.approx(2.5)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    pictures = {"times.svg", "course.svg", "hits.svg", "tenants.svg", "ratios.svg"}
    assert names == pictures | {"samples.jsonl", "figures.json", "report.html"}
    line = summary_line(report(found))
    assert line.startswith("run: requests=60 failed=")
    assert "ttft_p50_ratio=2.5" in line
