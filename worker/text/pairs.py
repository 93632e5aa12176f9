"""A query and a document as one prompt (step 7). Members: `yes_no`, `tokenizer`.

Both encode the query's side and the document apart, so that all pairs of one query begin with the
same ids, and take what a client wrote as plain text, whatever special token it spells:

    yes_no      |system: judge ... <Instruct> ... <Query> ... <Document>:| document, end, think|
    tokenizer   |[CLS] query [SEP]                                       | document [SEP]      |
                |<-------- shared by all documents of the query -------->|
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from worker.errors import InvalidRequest, ModelUnavailable
from worker.text.tokenizer import Tokenizer

# Qwen3-Reranker's published prompt (arXiv 2506.05176 and the model's card).
SYSTEM = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
ANSWER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
TURNS = ("<|im_start|>", "<|im_end|>")


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """A pair's ids. shared: how many of the first come from the query and what's in front of it."""

    ids: list[int]
    shared: int


class Pairs(Protocol):
    """Writes pairs for one model. Safe to use from several threads."""

    name: str

    def encode(self, query: str, document: str, instruction: str) -> EncodedPair:
        """Returns the pair's ids; instruction "": none. Raises InvalidRequest."""


class YesNoPairs:
    """As Qwen3-Reranker was trained: does the document meet the requirements, yes or no?

    no, yes: the ids of the answers. Raises ModelUnavailable where the vocabulary has no such words.
    """

    name = "yes_no"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        missing = [text for text in TURNS if text not in tokenizer.special_tokens]
        ids = {word: tokenizer.id_of(word) for word in ("no", "yes")}
        missing += [word for word, found in ids.items() if found is None]
        if missing:
            raise ModelUnavailable(
                "task is 'rerank': the model's vocabulary lacks "
                f"{', '.join(map(repr, missing))}, so it can't be asked for yes or no in the way "
                "of Qwen3-Reranker."
            )
        self.no, self.yes = (found for found in ids.values() if found is not None)
        self._front = tokenizer.encode_template(SYSTEM)
        self._end = tokenizer.encode_template(ANSWER)

    def encode(self, query: str, document: str, instruction: str) -> EncodedPair:
        """As Pairs.encode. The space in front of a document begins its own first word."""
        asked = f"<Instruct>: {instruction or INSTRUCTION}\n<Query>: {query}\n<Document>:"
        front = self._front + self._tokenizer.encode_inner(asked)
        own = self._tokenizer.encode_inner(f" {document}")
        return EncodedPair(front + own + self._end, len(front))


class TokenizerPairs:
    """By the template for two texts that the tokenizer brings."""

    name = "tokenizer"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, query: str, document: str, instruction: str) -> EncodedPair:
        """As Pairs.encode."""
        if instruction:
            raise InvalidRequest("instruction", "This model reads no instruction.")
        ids, shared = self._tokenizer.encode_pair(query, document)
        return EncodedPair(ids, shared)

    @property
    def separator(self) -> int | None:
        """The id that ends the first text, where the template tells the two apart by type."""
        return self._tokenizer.pair_separator
