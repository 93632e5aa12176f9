"""The model's vocabulary as llguidance knows it: every id's bytes, and text to canonical ids.

Built from our own tokenizer, so that ids spell the same for the grammar, for prompts and for
clients: byte-level BPE, sentencepiece with and without byte fallback, padded vocabularies.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from llguidance import LLTokenizer

from worker.text.tokenizer import Tokenizer

# Stands in front of text whose first token a tokenizer would write with a space.
_GUARD = "\n"


@dataclass(frozen=True, slots=True)
class Tokens:
    """library: the tokens as it knows them. num_bytes: of a mask of one bit per id of the model.

    ends: ids that never show up as text, those that end a sequence (eos) among them.
    """

    library: LLTokenizer
    num_bytes: int
    eos: frozenset[int]
    ends: frozenset[int]

    def beginning(self, text: bytes, num_bytes: int) -> list[int]:
        """Returns the text's first ids, as far as they lie within so many bytes; at least one."""
        ids: list[int] = []
        end = 0
        for one in self.library.tokenize_bytes(text):
            end += len(self.library.decode_bytes([one]))
            if ids and end > num_bytes:
                break
            ids.append(one)
        return ids


class Vocabulary:
    """One model's vocabulary. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._tokens: Tokens | None = None

    def tokens(self) -> Tokens:
        """Returns the tokens; the first call takes a part of a second."""
        with self._lock:
            if self._tokens is None:
                self._tokens = _built(self._tokenizer)
            return self._tokens


class Canon:
    """What llguidance asks of a tokenizer. It raises nothing: that would be the library's end.

    tokens: by id, empty for an id that no text has.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        size = tokenizer.vocab_size
        self.tokens = [tokenizer.token_bytes(one) for one in range(size)]
        special = {one for one in tokenizer.special_ids if one < size}
        self.special_token_ids = sorted(special | tokenizer.eos_ids)
        self.eos_token_id = min(tokenizer.eos_ids, default=None)
        self._ids = {spelled: one for one, spelled in reversed(list(enumerate(self.tokens)))}
        self._longest = max(map(len, self.tokens))
        self._special = special | tokenizer.eos_ids
        self._guard = tokenizer.encode_inner(_GUARD)

    def __call__(self, text: str | bytes) -> list[int]:
        """Returns the ids of text that stands behind other text; they spell just that."""
        told = text.decode(errors="replace") if isinstance(text, bytes) else text
        wanted = told.encode(errors="replace")
        for ids in self._ways(told):
            if self._spells(ids, wanted):
                return ids
        return self._greedy(wanted)

    def _ways(self, text: str) -> list[list[int]]:
        """As the tokenizer has it, and as it has it behind a new line."""
        plain = self._tokenizer.encode_inner(text)
        guarded = self._tokenizer.encode_inner(_GUARD + text)
        return [plain, guarded[len(self._guard) :]]

    def _spells(self, ids: list[int], wanted: bytes) -> bool:
        known = all(one < len(self.tokens) and one not in self._special for one in ids)
        return known and b"".join([self.tokens[one] for one in ids]) == wanted

    def _greedy(self, rest: bytes) -> list[int]:
        """The longest token, again and again; stops where no token goes on."""
        ids: list[int] = []
        while rest:
            for size in range(min(self._longest, len(rest)), 0, -1):
                found = self._ids.get(rest[:size])
                if found is not None and found not in self._special:
                    break
            else:
                return ids
            ids.append(found)
            rest = rest[size:]
        return ids


def _built(tokenizer: Tokenizer) -> Tokens:
    canon = Canon(tokenizer)
    ends = sorted(tokenizer.eos_ids) or None
    library = LLTokenizer(canon, eos_token=ends)  # type: ignore[arg-type]
    num_bytes = -(-tokenizer.vocab_size // 8)
    return Tokens(library, num_bytes, tokenizer.eos_ids, frozenset(canon.special_token_ids))
