"""How many tokens of a plain text later text can't change any more (step 7).

Up to a place in the text, counted in characters, those tokens are settled that end before the last
word boundary which lies at least MARGIN characters in front of the place:

    text     |The quick brown fox jumps over the lazy| dog ...        place: 39
    settled  |The|                                                    " quick" ends behind 39 - 32

A tokenizer encodes word by word, and where a word ends shows within a few characters, so the same
text up to the place gives the same tokens up to there, whatever follows. A word begins where the
tokenizer says so, or with white space where it takes a text for one word (sentencepiece without
cuts). The margin is for what looks ahead: white space, composed characters, special tokens. In a
text without word boundaries nothing is settled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from worker.text.tokenizer import Spans

MARGIN = 32


@dataclass(frozen=True, slots=True)
class Words:
    """Where words end that another follows, and how many tokens there are up to each end.

    Both begin with 0 and rise.
    """

    ends: list[int]
    counts: list[int]

    @classmethod
    def of(cls, text: str, spans: Spans) -> Words:
        """Returns the words of a text. spans: what the tokenizer made of it."""
        ends, counts = [0], [0]
        for count in range(1, len(spans.ids)):
            end, start = spans.ends[count - 1], spans.starts[count]
            if spans.words[count] != spans.words[count - 1] or _begins_word(text, end, start):
                ends.append(max(end, ends[-1]))
                counts.append(count)
        return cls(ends, counts)

    def settled(self, place: int) -> int:
        """Returns which is the last end that's settled at a place; the first is, always."""
        return max(bisect_right(self.ends, place - MARGIN) - 1, 0)


def settled(text: str, spans: Spans, places: Sequence[int]) -> list[int]:
    """Returns, for each place, how many leading tokens are settled there; 0 where none is.

    spans: what the tokenizer made of the text. Places lie in the text, counted in code points.
    """
    words = Words.of(text, spans)
    return [words.counts[words.settled(place)] for place in places]


def _begins_word(text: str, end: int, start: int) -> bool:
    """Whether a token that starts there is the first of a word, by the white space in front."""
    return 0 < end <= start < len(text) and text[start].isspace() and not text[start - 1].isspace()
