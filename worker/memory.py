"""How many pages fit a memory budget, what is free, and the sentences that a worker starts with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from worker.errors import ModelUnavailable


@dataclass(frozen=True, slots=True)
class PagePlan:
    """The page pool that a budget buys. bytes_per_token: K and V over all layers."""

    num_pages: int
    page_size: int
    bytes_per_token: int

    @property
    def num_tokens(self) -> int:
        """Tokens that the pool holds."""
        return self.num_pages * self.page_size

    @property
    def num_bytes(self) -> int:
        """Memory that the pool takes."""
        return self.num_tokens * self.bytes_per_token


def plan_pages(budget_bytes: int, page_size: int, bytes_per_token: int) -> PagePlan:
    """Returns the largest pool within the budget. Raises ModelUnavailable when it holds no page."""
    num_pages = budget_bytes // (page_size * bytes_per_token)
    if num_pages < 1:
        raise ModelUnavailable(
            f"kv_memory of {readable(budget_bytes)} holds no page: one page of {page_size} tokens "
            f"takes {readable(page_size * bytes_per_token)}."
        )
    return PagePlan(num_pages, page_size, bytes_per_token)


def start_lines(plan: PagePlan, cache: str, max_model_len: int) -> list[str]:
    """Returns what an operator wants to see first: the pool, and which prefix cache uses it."""
    pool = (
        f"KV pool: {plan.num_tokens:,} tokens in {plan.num_pages:,} pages of {plan.page_size} "
        f"({readable(plan.num_bytes)}, {plan.bytes_per_token:,} bytes a token); "
        f"longest request {max_model_len:,} tokens"
    )
    if cache == "off":
        return [pool, "prefix cache: off"]
    exact = "exact to the token" if cache == "radix" else "whole pages only"
    return [pool, f"prefix cache: {cache}, up to {plan.num_tokens:,} tokens, {exact}"]


def free_memory(group: Path) -> int:
    """Returns the bytes of main memory that are free, in a container those of its limit.

    group: where the kernel shows the control group (version 2); without one the machine counts.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        return free if limit == "max" else max(min(free, int(limit) - used), 0)
    except (OSError, ValueError):
        return free


def readable(num_bytes: int) -> str:
    """Returns a size in the largest binary unit that keeps it above 1."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
