"""Text to token ids and token ids to bytes, from a model folder's tokenizer.json. No torch.

Steps 7 and 11 of a request's path: `chat` and the link encode with it, `detokenizer` and logprobs
ask it for a token's bytes. Safe to use from several threads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from worker.errors import ModelUnavailable
from worker.text.model_configs import ModelConfigs
from worker.text.token_bytes import byte_converter, parts

# Any text that isn't white space, to see what is put in front of it.
LETTER = "a"


class UnknownTokenId(ValueError):
    """A token id that the model doesn't have."""

    def __init__(self, token_id: int, vocab_size: int) -> None:
        super().__init__(
            f"Token id {token_id} is outside the model's vocabulary of {vocab_size} (0 to "
            f"{vocab_size - 1})."
        )


@dataclass(frozen=True, slots=True)
class Strip:
    """Whether a special token swallows the white space on its left, on its right."""

    left: bool
    right: bool


@dataclass(frozen=True, slots=True)
class Spans:
    """A text's tokens and where in it they lie: token i at text[starts[i]:ends[i]].

    words: which word a token belongs to; None for one that the tokenizer added.
    """

    ids: list[int]
    starts: list[int]
    ends: list[int]
    words: list[int | None]


class Tokenizer:
    """One model's vocabulary.

    vocab_size: the model's (embeddings are often padded); the tokenizer's where no config says.
    exceeds_model: there are tokens beyond it, which text may be encoded to and no model can take.
    eos_ids: the ids that end a sequence, by generation config, tokenizer config or config.
    special_ids: the ids that never show up as text; special_tokens: their ids by text.
    strips: by special id, what white space around it belongs to it.
    drops_space: decoding drops a space in front of the text (sentencepiece's dummy prefix).
    """

    def __init__(self, definition: dict[str, Any], configs: ModelConfigs) -> None:
        self._plain = _encoder(definition)
        self._literal = _encoder(definition)
        self._literal.encode_special_tokens = True
        self._inner = self._literal
        if (spaceless := _without_first_space(definition)) is not None:
            self._inner = _encoder(spaceless)
            self._inner.encode_special_tokens = True
        added = self._plain.get_added_tokens_decoder()
        special = {number: token for number, token in added.items() if token.special}
        self.special_ids = frozenset(special)
        self.special_tokens = {token.content: number for number, token in special.items()}
        self.strips = {
            number: Strip(token.lstrip, token.rstrip) for number, token in special.items()
        }
        self.drops_space = _drops_space(definition)
        num_tokens = 1 + max(self._plain.get_vocab().values())
        self.vocab_size = configs.vocab_size or num_tokens
        self.exceeds_model = num_tokens > self.vocab_size
        eos_ids = configs.eos_ids(self._plain.token_to_id)
        self.eos_ids = frozenset(one for one in eos_ids if one < self.vocab_size)
        self._convert = byte_converter(definition)
        self._bytes = {number: token.content.encode() for number, token in added.items()}
        # A normalizer may drop characters; a special token that strips swallows white space.
        self._keeps_length = not definition.get("normalizer") and not any(
            strip.left or strip.right for strip in self.strips.values()
        )

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Returns the tokenizer of a model folder; raises ModelUnavailable if it isn't readable."""
        try:
            definition = json.loads((folder / "tokenizer.json").read_text("utf-8"))
            made = cls(definition, ModelConfigs.read(folder))
        except ModelUnavailable:
            raise
        except Exception as error:  # the tokenizers library raises bare Exception
            raise ModelUnavailable(f"{folder}: the tokenizer can't be read: {error}") from error
        # The library starts its threads with the first text. Where it can't, then or later, it
        # never tries again, and every text of the process fails.
        made.encode("")
        return made

    def encode(self, text: str) -> list[int]:
        """Returns ids with special tokens recognised and the tokenizer's own BOS rule applied."""
        return _ids(self._plain, text, add_special_tokens=True)

    def encode_spans(self, text: str) -> Spans:
        """Returns what `encode` does, with the tokens' places in the text."""
        (encoding,) = self._plain.encode_batch([text], add_special_tokens=True)
        return _spans(encoding)

    def encode_literal(self, text: str) -> list[int]:
        """Returns ids of `text` as plain text: text that spells a special token stays text.

        No BOS is added.
        """
        return _ids(self._literal, text) if text else []

    def encode_inner(self, text: str) -> list[int]:
        """Returns ids of plain text that stands behind other text.

        Differs from `encode_literal` in sentencepiece vocabularies that put a space before a
        text's first word only.
        """
        return _ids(self._inner, text) if text else []

    def encode_template(self, text: str) -> list[int]:
        """Returns ids of a text of our own: special tokens are recognised, none are added."""
        return _ids(self._plain, text)

    def encode_pair(self, first: str, second: str) -> tuple[list[int], int]:
        """Returns two plain texts' ids by the tokenizer's template for pairs.

        And how many of them stand in front of the second text.
        """
        (encoding,) = self._literal.encode_batch_fast([(first, second)], add_special_tokens=True)
        owners = encoding.sequence_ids
        return list(encoding.ids), owners.index(1) if 1 in owners else len(owners)

    @cached_property
    def pair_separator(self) -> int | None:
        """The special id that ends a pair's first text, where the second one has another type."""
        (encoding,) = self._literal.encode_batch_fast([(LETTER, LETTER)], add_special_tokens=True)
        types = list(encoding.type_ids)
        last = encoding.ids[types.index(1) - 1] if 1 in types else None
        return last if last in self.special_ids else None

    def decode(self, ids: list[int]) -> str:
        """Returns the text of ids, special tokens among it. Raises UnknownTokenId."""
        wrong = next((one for one in ids if not 0 <= one < self.vocab_size), None)
        if wrong is not None:
            raise UnknownTokenId(wrong, self.vocab_size)
        return self._plain.decode(ids, skip_special_tokens=False)

    def id_of(self, token: str) -> int | None:
        """Returns the id of a vocabulary entry, None where there is none that the model has."""
        found = self._plain.token_to_id(token)
        return found if found is not None and found < self.vocab_size else None

    def piece_spans(self, text: str, *, inner: bool) -> Spans:
        """Returns what `encode_inner` or `encode_literal` does, with the tokens' places."""
        encoder = self._inner if inner else self._literal
        (encoding,) = encoder.encode_batch([text], add_special_tokens=False)
        return _spans(encoding)

    @cached_property
    def lead(self) -> list[int]:
        """The ids that `encode` puts in front of every text (BOS)."""
        return _ids(self._plain, "", add_special_tokens=True)

    def puts_space(self, *, inner: bool) -> bool:
        """Whether a text's first token is written with a space that the text doesn't have."""
        return self._inner_space if inner else self._first_space

    @cached_property
    def _first_space(self) -> bool:
        return _begins_with_space(self, self.encode_literal(LETTER))

    @cached_property
    def _inner_space(self) -> bool:
        return _begins_with_space(self, self.encode_inner(LETTER))

    @cached_property
    def _longest_token(self) -> int:
        """Bytes of the longest token."""
        return max(map(len, map(self.token_bytes, range(self.vocab_size))))

    def fewest_tokens(self, text: str) -> int:
        """Returns a number of tokens that the text has at least, without encoding it.

        0 where something may shorten the text first.
        """
        return self.fewest_of(len(text.encode("utf-8", "replace")))

    def fewest_of(self, num_bytes: int) -> int:
        """Returns the same for a text of so many bytes."""
        return num_bytes // self._longest_token if num_bytes and self._keeps_length else 0

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the token's own bytes, which need not be whole characters.

        Empty for an id inside the model's vocabulary that no token has. Raises UnknownTokenId.
        """
        found = self._bytes.get(token_id)
        if found is None:
            if not 0 <= token_id < self.vocab_size:
                raise UnknownTokenId(token_id, self.vocab_size)
            found = self._bytes[token_id] = self._token_bytes(token_id)
        return found

    def _token_bytes(self, token_id: int) -> bytes:
        token = self._plain.id_to_token(token_id)
        return b"" if token is None else self._convert(token)


def _spans(encoding: tokenizers.Encoding) -> Spans:
    offsets = encoding.offsets
    return Spans(
        list(encoding.ids),
        [start for start, _ in offsets],
        [end for _, end in offsets],
        list(encoding.word_ids),
    )


def _begins_with_space(tokenizer: Tokenizer, ids: list[int]) -> bool:
    return b"".join(map(tokenizer.token_bytes, ids)).startswith(b" ")


def _ids(
    encoder: tokenizers.Tokenizer, text: str, *, add_special_tokens: bool = False
) -> list[int]:
    """Returns the text's ids; of the library's ways, the one that lets other threads run."""
    (encoding,) = encoder.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    return list(encoding.ids)


def _encoder(definition: dict[str, Any]) -> tokenizers.Tokenizer:
    encoder = tokenizers.Tokenizer.from_str(json.dumps(definition))
    encoder.no_truncation()
    encoder.no_padding()
    return encoder


def _drops_space(definition: dict[str, Any]) -> bool:
    return any(
        (part["type"] == "Metaspace" and part.get("prepend_scheme") != "never")
        or (part["type"] == "Strip" and part.get("content") == " " and bool(part.get("start")))
        for part in parts(definition.get("decoder") or {}, "decoders")
    )


def _without_first_space(definition: dict[str, Any]) -> dict[str, Any] | None:
    """The definition for text behind other text, or None where that makes no difference."""
    changed = json.loads(json.dumps(definition))
    found = [
        part
        for part in parts(changed.get("pre_tokenizer") or {}, "pretokenizers")
        if part.get("prepend_scheme") == "first"
    ]
    for part in found:
        part["prepend_scheme"] = "never"
    return changed if found else None
