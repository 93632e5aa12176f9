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

from worker.text.agreement import common_length
from worker.text.marks import special_pattern
from worker.text.seam import Seam, Seams
from worker.text.settled import MARGIN, Words
from worker.text.tokenizer import Spans, Tokenizer
from worker.text.turns import Opening, Place, Recall, Said


@dataclass(frozen=True, slots=True)
class PlainPrompt:
    """A text's ids. positions: for each place asked for, how many ids are settled there."""

    ids: list[int]
    positions: list[int]


@dataclass(frozen=True, slots=True)
class _Text:
    """A text as the tokenizer writes it by itself."""

    text: str
    spans: Spans
    words: Words


@dataclass(frozen=True, slots=True)
class _Way:
    """How a text may be written from a place on.

    shift: by how many ids an answer in front is longer than the tokenizer's. shared: how many of
    the first ids are the prompt's, too.
    """

    begins: int
    shift: int
    shared: int


class PlainText:
    """Encodes plain text prompts of one tokenizer. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._seams = Seams(tokenizer)
        self._special = special_pattern(tokenizer.special_tokens)
        self._longest = max(map(len, tokenizer.special_tokens), default=0)

    def encode(self, text: str, places: Sequence[int], recall: Recall | None) -> PlainPrompt:
        """Returns the prompt, special tokens in it recognised and BOS put as the tokenizer does.

        places: counted in code points, in the text, rising. recall: where answers are looked for.
        """
        said = recall.find(None, text) if recall else None
        if said is None and not places:
            return PlainPrompt(self._tokenizer.encode(text), [])
        spans = self._tokenizer.encode_spans(text)
        whole = _Text(text, spans, Words.of(text, spans))
        if recall is None or said is None:
            return PlainPrompt(spans.ids, [_settled(whole, place) for place in places])
        ids = _joined(said, self._seam(said, whole), spans)
        return PlainPrompt(ids, self._positions(whole, places, recall, ids))

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

    def _seam(self, said: Said, whole: _Text) -> Seam | None:
        """Returns how far the answer's ids go in this very text."""
        if said.text == whole.text:
            return Seam(len(said.ids), len(whole.spans.ids))
        return self._seams.before_special(said, whole.spans) or self._settled_seam(said, whole)

    def _settled_seam(self, said: Said, whole: _Text) -> Seam | None:
        """Returns how far they go in every text that begins with the answer's."""
        num_lead = len(self._tokenizer.lead)
        return self._seams.settled(said, whole.spans, whole.words, inner=False, num_lead=num_lead)

    def _positions(
        self, whole: _Text, places: Sequence[int], recall: Recall, ids: Sequence[int]
    ) -> list[int]:
        """Returns for each place the ids that every text has which is the same up to there."""
        positions, said = [], recall.find(None, whole.text)
        ways = self._ways(said, whole, ids)
        for place in reversed(places):
            if said is not None and place < len(said.text):
                said = recall.find(None, whole.text[:place])
                ways = self._ways(said, whole, ids)
            way = next(way for way in ways if way.begins <= place)
            positions.append(min(_settled(whole, place) + way.shift, way.shared))
        return positions[::-1]

    def _ways(self, said: Said | None, whole: _Text, ids: Sequence[int]) -> list[_Way]:
        """Returns how texts are written that begin with the answer, the last to begin first."""
        spans = whole.spans
        if said is None:
            return [_Way(0, 0, common_length(spans.ids, ids))]
        special = self._seams.before_special(said, spans)
        found = [(0, self._settled_seam(said, whole))]
        if special is not None:
            found.insert(0, (spans.ends[special.num_own] + MARGIN, special))
        return [
            _Way(
                begins,
                seam.num_said - seam.num_own if seam else 0,
                common_length(_joined(said, seam, spans), ids),
            )
            for begins, seam in found
        ]


def _settled(whole: _Text, place: int) -> int:
    return whole.words.counts[whole.words.settled(place)]


def _joined(said: Said, seam: Seam | None, spans: Spans) -> list[int]:
    if seam is None:
        return spans.ids
    return said.ids[: seam.num_said].tolist() + spans.ids[seam.num_own :]
