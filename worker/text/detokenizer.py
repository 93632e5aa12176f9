"""Token ids to text as they come, never half a character (step 11 of a request's path).

Works on the tokens' bytes through an incremental UTF-8 decoder, so each token is looked at once:
what the pushes and the flush return, joined, is what decoding all ids at once gives, with every
invalid sequence replaced by U+FFFD.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from worker.text.tokenizer import Tokenizer

_UTF8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """The text of one sequence. Special tokens are left out, but for those that are shown.

    A sentencepiece vocabulary writes a text's first word with a space that isn't the text's own.
    By default it's dropped, as in decoding the ids by themselves; `after_text` keeps it, for ids
    that continue a text. dropped_space: whether there was one.
    """

    def __init__(self, tokenizer: Tokenizer, shown: frozenset[int] = frozenset()) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids - shown
        self._decoder = _UTF8(errors="replace")
        self._drops_space = tokenizer.drops_space
        self.dropped_space = False

    @classmethod
    def after_text(cls, tokenizer: Tokenizer, shown: frozenset[int] = frozenset()) -> Detokenizer:
        """Returns a detokenizer for ids that follow other text."""
        detokenizer = cls(tokenizer, shown)
        detokenizer._drops_space = False
        return detokenizer

    def push(self, ids: Iterable[int]) -> str:
        """Returns the characters that are complete with these ids."""
        hidden = self._hidden
        token_bytes = self._tokenizer.token_bytes
        data = b"".join([token_bytes(token) for token in ids if token not in hidden])
        if not data:
            return ""
        if self._drops_space:
            self.dropped_space = data.startswith(b" ")
            data = data.removeprefix(b" ")
            self._drops_space = False
        return self._decoder.decode(data)

    def flush(self) -> str:
        """Returns what is left: U+FFFD for an unfinished character. Nothing follows."""
        return self._decoder.decode(b"", final=True)
