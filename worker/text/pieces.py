"""Rendered text to ids, cut at the special tokens, with the pieces between them remembered.

Special tokens part a text before anything else happens to it, so the pieces' ids, joined, are the
whole text's ids. A shared system prompt or an earlier turn is thus encoded once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from worker.errors import InvalidRequest
from worker.text.marks import Marks, special_pattern
from worker.text.recent import Recent
from worker.text.tokenizer import Tokenizer

REMEMBERED_TOKENS = 1 << 22
# A remembered piece costs about as much as so many tokens, however short it is.
ENTRY_TOKENS = 64


class Pieces:
    """Encodes rendered prompts of one tokenizer. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = special_pattern(tokenizer.special_tokens)
        self._known: Recent[tuple[str, bool], array[int]] = Recent(REMEMBERED_TOKENS)

    def encode(self, text: str, mark: str = "") -> array[int]:
        """Returns int32 ids: special tokens as such, all between as plain text.

        mark: see `marks`; it's removed from the pieces. No BOS is added.
        """
        ids = array("i")
        for piece, special_id in self._cut(text):
            if piece:
                ids.extend(self._piece(Marks.removed(piece, mark), inner=bool(ids)))
            if special_id is not None:
                ids.append(special_id)
        return ids

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
