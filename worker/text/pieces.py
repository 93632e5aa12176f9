"""Rendered text to ids, cut at the special tokens, with the pieces between them remembered.

Special tokens part a text before anything else happens to it, so the pieces' ids, joined, are the
whole text's ids. A shared system prompt or an earlier turn is thus encoded once. A piece that this
worker has answered itself takes the ids that were generated (`turns`).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from worker.errors import InvalidRequest
from worker.text.marks import Marks, special_pattern
from worker.text.recent import Recent
from worker.text.seam import Seams
from worker.text.settled import Words
from worker.text.tokenizer import Tokenizer
from worker.text.turns import Opening, Place, Recall, Said

REMEMBERED_TOKENS = 1 << 22
# A remembered piece costs about as much as so many tokens, however short it is.
ENTRY_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Taken:
    """An answer whose ids a prompt has; own: they are the tokenizer's, too."""

    text: str
    own: bool


@dataclass(slots=True)
class Encoded:
    """A text's ids. last: the text behind the last special token; last_start: where its ids begin.

    taken: the answers in it, in order.
    """

    ids: array[int] = field(default_factory=lambda: array("i"))
    last: str = ""
    last_start: int = 0
    taken: list[Taken] = field(default_factory=list)

    def opening(self, namespace: bytes) -> Opening:
        """Returns what an answer to this prompt goes on from."""
        front = _Front()
        behind = front.digest(self.ids[: self.last_start])
        ids = self.ids[self.last_start :]
        return Opening(Place(namespace, behind), self.last, ids, inner=self.last_start > 0)


class _Front:
    """The digest of ids in front of a piece, as they grow."""

    def __init__(self) -> None:
        self._state = hashlib.blake2b(digest_size=16)
        self._num_ids = 0

    def digest(self, ids: array[int]) -> bytes:
        self._state.update(ids[self._num_ids :].tobytes())
        self._num_ids = len(ids)
        return self._state.digest()


class Pieces:
    """Encodes rendered prompts of one tokenizer. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = special_pattern(tokenizer.special_tokens)
        self._known: Recent[tuple[str, bool], array[int]] = Recent(REMEMBERED_TOKENS)
        self._seams = Seams(tokenizer)

    def encode(
        self, text: str, mark: str = "", recall: Recall | None = None, *, inner: bool = False
    ) -> Encoded:
        """Returns int32 ids: special tokens as such, all between as plain text.

        mark: see `marks`; it's removed from the pieces. No BOS is added. recall: where answers are
        looked for; None: nowhere. inner: the text stands behind other text.
        """
        encoded, front = Encoded(), _Front()
        ids = encoded.ids
        for piece, special_id in self._cut(text):
            encoded.last, encoded.last_start = Marks.removed(piece, mark), len(ids)
            if piece:
                own = self._piece(encoded.last, inner=inner or bool(ids))
                said = recall.find(front.digest(ids), encoded.last) if recall else None
                ids.extend(own if said is None else self._answered(encoded, own, said))
            if special_id is not None:
                ids.append(special_id)
        return encoded

    def parts_at(self, text: str, position: int) -> bool:
        """Whether a special token or the end of the text stands at `position`."""
        return position == len(text) or self._special.match(text, position) is not None

    def cut_back(self, ids: Sequence[int]) -> Sequence[int]:
        """Returns `ids` without the last word, which could grow together with what follows.

        Words begin with white space or behind a special token.
        """
        end = len(ids)
        while end and ids[end - 1] not in self._tokenizer.special_ids:
            end -= 1
            token = self._tokenizer.token_bytes(ids[end])
            if token[:1].isspace() and not token.isspace():
                break
        return ids[:end]

    def _cut(self, text: str) -> Iterator[tuple[str, int | None]]:
        """Yields (text before, id) of every special token, then the rest of the text with None."""
        start = 0
        for found in self._special.finditer(text):
            special_id = self._tokenizer.special_tokens[found[0]]
            strip = self._tokenizer.strips[special_id]
            piece = text[start : found.start()]
            yield piece.rstrip() if strip.left else piece, special_id
            start = found.end()
            if strip.right:
                start += len(text) - start - len(text[start:].lstrip())
        yield text[start:], None

    def _answered(self, encoded: Encoded, own: array[int], said: Said) -> array[int]:
        """Returns the last piece's ids with what was said in its beginning, if that can be joined.

        own: the tokenizer's ids of the piece.
        """
        text, inner = encoded.last, encoded.last_start > 0
        if text == said.text:
            ids = said.ids
        else:
            spans = self._tokenizer.piece_spans(text, inner=inner)
            seam = self._seams.settled(said, spans, Words.of(text, spans), inner=inner)
            if seam is None or spans.ids != own.tolist():
                return own
            ids = said.ids[: seam.num_said] + own[seam.num_own :]
        encoded.taken.append(Taken(said.text, ids == own))
        return ids

    def _piece(self, piece: str, inner: bool) -> array[int]:
        known = self._known.get((piece, inner))
        if known is None:
            try:
                encode = self._tokenizer.encode_inner if inner else self._tokenizer.encode_literal
                known = array("i", encode(piece))
            except TypeError as error:  # the library's word for text that isn't valid Unicode
                raise InvalidRequest("messages", "A text has half a surrogate pair.") from error
            self._known.put((piece, inner), known, len(known) + ENTRY_TOKENS)
        return known
