"""Plain text prompts to ids, and how many of them are settled at places in the text (step 7).

A prompt that goes on from an answer of this worker's takes the ids that were generated (`turns`,
`seam`). What they are at a place follows from the text up to there, as far as it's settled, and
from the answers that end in front of it:

    text     |<-------- answered -------->| more |
    place              ^                      ^
    settled  own ids, as far as they are     generated ids to the seam, own ids behind it
             the prompt's ids, too
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from worker.text.marks import special_pattern
from worker.text.seam import Seam, Seams
from worker.text.settled import MARGIN, settled
from worker.text.tokenizer import Spans, Tokenizer
from worker.text.turns import Opening, Place, Recall, Said


@dataclass(frozen=True, slots=True)
class PlainPrompt:
    """A text's ids. positions: for each place asked for, how many ids are settled there."""

    ids: list[int]
    positions: list[int]


class PlainText:
    """Encodes plain text prompts of one tokenizer. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._seams = Seams(tokenizer)
        self._special = special_pattern(tokenizer.special_tokens)
        self._longest = max(map(len, tokenizer.special_tokens), default=0)

    def encode(self, text: str, places: Sequence[int], recall: Recall | None) -> PlainPrompt:
        """Returns the prompt, special tokens in it recognised and BOS put as the tokenizer does.

        places: counted in code points, in the text. recall: where answers are looked for.
        """
        said = recall.find(None, text) if recall else None
        if said is not None and said.text == text and not places:
            return PlainPrompt(said.ids.tolist(), [])
        if said is None and not places:
            return PlainPrompt(self._tokenizer.encode(text), [])
        spans = self._tokenizer.encode_spans(text)
        if recall is None or said is None:
            return PlainPrompt(spans.ids, settled(text, spans, places))
        seam = Seam(len(said.ids), len(spans.ids)) if said.text == text else None
        ids = _joined(said, seam or self._seam(said, text, spans, len(text)), spans)
        return PlainPrompt(ids, self._positions(text, spans, places, recall, ids))

    def opening(self, text: str, ids: Sequence[int], namespace: bytes) -> Opening:
        """Returns what an answer to this prompt goes on from."""
        lead = self._tokenizer.lead
        num_lead = len(lead) if list(ids[: len(lead)]) == lead else 0
        place = Place(namespace, None)
        return Opening(place, text, array("i", ids), inner=False, num_lead=num_lead)

    def spells_special(self, opening: Opening, said: Said) -> bool:
        """Whether there is a special token's text in what was said, which would become its id."""
        start = max(len(opening.text) - self._longest + 1, 0)
        while (found := self._special.search(said.text, start)) is not None:
            if found.end() > len(opening.text):
                return True
            start = found.start() + 1
        return False

    def _seam(self, said: Said, text: str, spans: Spans, end: int) -> Seam | None:
        """Returns how far the answer's ids go where the text up to `end` is all that's known."""
        num_lead = len(self._tokenizer.lead)
        if spans.ids[:num_lead] != said.ids[:num_lead].tolist():
            return None
        seam = self._seams.before_special(said, spans, end)
        return seam or self._seams.settled(said, text, spans, inner=False, num_lead=num_lead)

    def _positions(
        self, text: str, spans: Spans, places: Sequence[int], recall: Recall, ids: Sequence[int]
    ) -> list[int]:
        """Returns for each place the ids that every text has which is the same up to there."""
        positions = []
        for place, num_own in zip(places, settled(text, spans, places), strict=True):
            said = recall.find(None, text[:place])
            seam = self._seam(said, text, spans, place - MARGIN) if said else None
            count = num_own + (seam.num_said - seam.num_own if seam else 0)
            known = _joined(said, seam, spans)[:count]
            positions.append(_common_length(known, ids))
        return positions


def _joined(said: Said | None, seam: Seam | None, spans: Spans) -> list[int]:
    if said is None or seam is None:
        return spans.ids
    return said.ids[: seam.num_said].tolist() + spans.ids[seam.num_own :]


def _common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading ids are the same: found by halves, each compared at once."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
