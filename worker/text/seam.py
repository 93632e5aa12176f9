"""Joins ids that were generated to the tokenizer's own, and takes them from a choice's tokens.

    text       |The river bends twice before it reaches| the old mill.
    generated  |The| riv|er bends twi|ce before it reaches|
    own        |The| river| bends| twice| before| it reaches the| old| mill|.|
    joined     |The| riv|er bends twi|ce before| it reaches the| old| mill|.|
                                     num_said ->|<- num_own

Whole answers are taken where a special token or nothing follows. Where text follows, the last words
could go together with it, so ids are taken as far as a word's end that lies `settled.MARGIN`
characters in front, and both ways to write the text have a token end there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from worker.text.settled import Words
from worker.text.tokenizer import Spans, Tokenizer
from worker.text.turns import Opening, Said

# Words looked at, from the end backwards, for one where both have a token end.
MAX_WORDS = 8


@dataclass(frozen=True, slots=True)
class Seam:
    """The first num_said ids of an answer stand for the first num_own of the tokenizer's."""

    num_said: int
    num_own: int


class Seams:
    """Finds where ids of one tokenizer can be joined."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def before_special(self, said: Said, spans: Spans) -> Seam | None:
        """Returns the seam at the answer's end if a special token stands there in spans' text."""
        count = bisect_left(spans.starts, len(said.text))
        if count == len(spans.ids) or spans.starts[count] != len(said.text):
            return None
        special = spans.ids[count] in self._tokenizer.special_ids
        return Seam(len(said.ids), count) if special else None

    def settled(
        self, said: Said, spans: Spans, words: Words, *, inner: bool, num_lead: int = 0
    ) -> Seam | None:
        """Returns the seam that stays, whatever follows the answer; None where there is none.

        spans, words: of a text that begins with the answer's. inner, num_lead: see `Opening`.
        """
        text, last = said.text, words.settled(len(said.text))
        said_ends = self._byte_ends(said, num_lead)
        for index in range(last, max(last - MAX_WORDS, 0), -1):
            end, num_own = words.ends[index], words.counts[index]
            head = text[:end].encode()
            num_said = said_ends.get(len(head))
            if num_said is None or spans.starts[num_own] != end:
                continue
            if self._spelled(spans.ids[num_lead:num_own], inner=inner) == head:
                return Seam(num_said, num_own)
        return None

    def said(
        self, opening: Opening, tokens: Sequence[int], text: str, drops_space: bool
    ) -> Said | None:
        """Returns what a choice said behind the opening; None where its ids don't spell just that.

        text: what its client was given of it. drops_space: but for a space in front. The opening
        is one that `spells`.
        """
        wanted = (b" " if drops_space else b"") + text.encode()
        taken = self._until(tokens, len(wanted))
        if not text or self._bytes(taken) != wanted:
            return None
        first = len(opening.ids) == opening.num_lead
        data = self._spelled(taken, inner=opening.inner) if first else wanted
        ids = opening.ids + array("i", taken)
        return Said(opening.text + data.decode(), ids) if data else None

    def spells(self, opening: Opening) -> bool:
        """Whether the ids of an opening spell its text, so that those of an answer can follow."""
        data = self._spelled(opening.ids[opening.num_lead :], inner=opening.inner)
        return data == opening.text.encode("utf-8", "replace")

    def _until(self, tokens: Sequence[int], num_bytes: int) -> list[int]:
        """Returns the fewest tokens that spell so many bytes, as far as no special one comes."""
        taken: list[int] = []
        for token in tokens:
            if num_bytes <= 0 or token in self._tokenizer.special_ids:
                break
            taken.append(token)
            num_bytes -= len(self._tokenizer.token_bytes(token))
        return taken

    def _byte_ends(self, said: Said, num_lead: int) -> dict[int, int]:
        """Returns how many of the ids there are up to each number of bytes of the text."""
        sizes = [len(self._tokenizer.token_bytes(token)) for token in said.ids[num_lead:]]
        surplus = sum(sizes) - len(said.text.encode())
        ends = enumerate(accumulate(sizes), start=num_lead + 1)
        return {end - surplus: count for count, end in ends}

    def _spelled(self, ids: Sequence[int], *, inner: bool) -> bytes:
        """Returns the text's bytes that ids spell, without the space that none has in front."""
        data = self._bytes(ids)
        return data.removeprefix(b" ") if self._tokenizer.puts_space(inner=inner) else data

    def _bytes(self, ids: Sequence[int]) -> bytes:
        return b"".join(map(self._tokenizer.token_bytes, ids))
