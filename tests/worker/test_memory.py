from __future__ import annotations

from pathlib import Path

import pytest

from worker.errors import ModelUnavailable
from worker.memory import free_memory, plan_pages, readable, start_lines


def test_the_pool_is_the_largest_within_the_budget() -> None:
    plan = plan_pages(1024**3, 16, 46_080)
    assert plan.num_pages == 1456
    assert plan.num_tokens == 23_296
    assert plan.num_bytes <= 1024**3 < plan.num_bytes + 16 * 46_080


def test_a_budget_below_one_page_is_refused_with_the_size_of_a_page() -> None:
    with pytest.raises(ModelUnavailable, match=r"720\.0 KiB"):
        plan_pages(1000, 16, 46_080)


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        ("radix", "radix, up to 23,296 tokens, exact to the token"),
        ("block", "block, up to 23,296 tokens, whole pages only"),
        ("off", "prefix cache: off"),
    ],
)
def test_a_start_line_says_which_cache_is_on_and_what_it_holds(cache: str, words: str) -> None:
    lines = start_lines(plan_pages(1024**3, 16, 46_080), cache, 8192)
    assert "23,296 tokens in 1,456 pages of 16" in lines[0]
    assert words in lines[1]


def test_free_memory_is_that_of_the_container_where_it_has_less(tmp_path: Path) -> None:
    machine = free_memory(tmp_path)
    assert machine > 0
    (tmp_path / "memory.current").write_text("600\n")
    for limit, free in (("1000\n", 400), ("500\n", 0)):
        (tmp_path / "memory.max").write_text(limit)
        assert free_memory(tmp_path) == free
    for limit in ("max\n", "odd"):
        (tmp_path / "memory.max").write_text(limit)
        assert free_memory(tmp_path) > 10**6


def test_sizes_read_like_sizes() -> None:
    assert [readable(size) for size in (12, 2048, 3 * 2**30, 2**42)] == [
        "12 B",
        "2.0 KiB",
        "3.0 GiB",
        "4.0 TiB",
    ]
