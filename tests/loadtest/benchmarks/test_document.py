"""Blocks of a page are found and filled; a page that is not as it should be is refused."""

from __future__ import annotations

import pytest

from loadtest.benchmarks import document
from loadtest.errors import BadDocument

PAGE = """# Page

<!-- figures: summary -->
<!-- end -->

## Thirty-two, at once (again)

prose about <!-- figures: this --> in a line

<!-- figures: a -->
old
<!-- end -->

## B

<!-- figures: b -->

old
<!-- end -->
the end
"""


def test_blocks_are_found_with_their_sections() -> None:
    found = document.blocks(PAGE)
    assert list(found) == ["summary", "a", "b"]
    assert {name: PAGE[one.start : one.end] for name, one in found.items()} == {
        "summary": "",
        "a": "old\n",
        "b": "\nold\n",
    }
    assert [one.section for one in found.values()] == ["", "Thirty-two, at once (again)", "B"]
    assert document.anchor("Thirty-two, at once (again)") == "thirty-two-at-once-again"


def test_what_is_filled_is_replaced_and_all_else_stays() -> None:
    first = document.replaced(PAGE, {"b": "new\nlines", "summary": "s"})
    assert first == PAGE.replace(
        "\nold\n<!-- end -->\nthe end", "new\nlines\n<!-- end -->\nthe end"
    )[:].replace("summary -->\n", "summary -->\ns\n")
    assert document.replaced(first, {"b": "new\nlines"}) == first


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<!-- figures: a -->\n", "'a' has no end"),
        ("x\n<!-- end -->\n", "line 2 has no partner"),
        ("<!-- figures: a -->\n<!-- figures: b -->\n<!-- end -->\n", "line 2 has no partner"),
        (PAGE + "<!-- figures: a -->\n<!-- end -->\n", "two blocks 'a'"),
    ],
)
def test_marks_without_a_partner_are_named(text: str, sentence: str) -> None:
    with pytest.raises(BadDocument, match=sentence):
        document.blocks(text)


def test_a_page_has_the_blocks_that_are_filled_and_no_others() -> None:
    document.check(PAGE, ("summary", "a", "b"))
    with pytest.raises(BadDocument, match="no block for: c, d"):
        document.check(PAGE, ("summary", "a", "b", "d", "c"))
    with pytest.raises(BadDocument, match="no command fills: b"):
        document.check(PAGE, ("summary", "a"))
