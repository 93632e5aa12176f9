"""Logprobs of prompt tokens beside the pages that they were computed with.

Slot i of a sequence holds the K/V of token i, from which the logprob of token i + 1 was computed.
It is kept with that token's id: another sequence may take it over as far as its own next token is
the same. Where it is not, or none is known, the position is computed again, and gives the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from worker.request import UNSCORED, TokenScore

_UNKNOWN = -1


@dataclass(slots=True)
class _Page:
    """One entry per slot: the next token's id, or _UNKNOWN, its logprob and its rank.

    best: the most likely id and its logprob, where that is another one.
    """

    following: array[int]
    logprobs: array[float]
    ranks: array[int]
    best: dict[int, tuple[int, float]] = field(default_factory=dict)


class PageScores:
    """Scores by page id. Pages that are handed out anew must be forgotten."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._pages: dict[int, _Page] = {}

    def __len__(self) -> int:
        """Pages that have any."""
        return len(self._pages)

    def forget(self, pages: SequenceOf[int]) -> None:
        """Drops what is known of pages whose content is about to change."""
        if self._pages:
            for page in pages:
                self._pages.pop(page, None)

    def put(self, page: int, slot: int, following: int, score: TokenScore) -> None:
        """Keeps the score of the token that follows a slot."""
        entry = self._pages.get(page)
        if entry is None:
            unknown = [_UNKNOWN] * self._page_size
            entry = _Page(array("i", unknown), array("d", unknown), array("i", unknown))
            self._pages[page] = entry
        entry.following[slot] = following
        entry.logprobs[slot] = score.logprob
        entry.ranks[slot] = score.rank
        entry.best.pop(slot, None)
        if score.best is not None:
            entry.best[slot] = score.best

    def known(self, pages: SequenceOf[int], tokens: array[int], start: int = 0) -> list[TokenScore]:
        """Returns the scores of tokens 1, 2, ... that these pages have, up to the first gap.

        start: those of so many first tokens don't matter.
        """
        size = self._page_size
        found: list[TokenScore] = [UNSCORED] * min(start, len(pages) * size)
        for index, page in enumerate(pages):
            if (index + 1) * size <= start:
                continue
            entry = self._pages.get(page)
            if entry is None:
                return found
            for slot in range(max(start - index * size, 0), size):
                position = index * size + slot + 1
                if position == len(tokens) or entry.following[slot] != tokens[position]:
                    return found
                score = TokenScore(entry.logprobs[slot], entry.ranks[slot], entry.best.get(slot))
                found.append(score)
        return found
