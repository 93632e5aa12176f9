"""Several questions of one long document, and questions behind worked examples of their subject."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from loadtest.errors import LoadTestError
from loadtest.load.prompt import Conversation, Prompt
from loadtest.words import sentence

Count = Annotated[int, Meta(ge=1)]


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """questions: of each document; each is a request of its own."""

    documents: Count = 8
    questions: Count = 4
    document_tokens: Count = 3000
    question_tokens: Count = 30
    output_tokens: Count = 48

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """Returns the questions of all documents in one random order."""
        made = []
        for number in range(self.documents):
            text = sentence(rng, self.document_tokens)
            for question in range(self.questions):
                asked = f"Document:\n{text}\n\nQuestion: {sentence(rng, self.question_tokens)}"
                made.append(_asked(f"document-{number}-{question}", asked, self.output_tokens))
        rng.shuffle(made)
        return made


class FewShot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """subjects, each with `shots` worked examples of shot_tokens in front of every question.

    path: a JSON file, or one packed by gzip, of {subject: text of its examples}, in place of made
    ones; then `subjects` of it are taken, by chance.
    """

    subjects: Count = 10
    questions: Count = 4
    shots: Count = 5
    shot_tokens: Count = 120
    question_tokens: Count = 40
    output_tokens: Count = 32
    path: str | None = None

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """Returns the questions of all subjects in one random order. Raises LoadTestError."""
        prefixes = self._read(rng) if self.path else self._made(rng)
        made = [
            _asked(
                f"{subject}-{number}",
                f"{examples}\n\nQ: {sentence(rng, self.question_tokens)}\nA:",
                self.output_tokens,
            )
            for subject, examples in prefixes.items()
            for number in range(self.questions)
        ]
        rng.shuffle(made)
        return made

    def _made(self, rng: random.Random) -> dict[str, str]:
        half = max(1, self.shot_tokens // 2)
        return {
            f"subject-{number}": "\n\n".join(
                f"Q: {sentence(rng, half)}\nA: {sentence(rng, half)}" for _ in range(self.shots)
            )
            for number in range(self.subjects)
        }

    def _read(self, rng: random.Random) -> dict[str, str]:
        assert self.path is not None
        try:
            data = Path(self.path).read_bytes()
            text = gzip.decompress(data) if self.path.endswith(".gz") else data
            found = msgspec.json.decode(text, type=dict[str, str])
        except (OSError, ValueError) as error:
            raise LoadTestError(f"path is {self.path!r}: {error}") from error
        names = sorted(found)
        return {name: found[name] for name in rng.sample(names, min(self.subjects, len(names)))}


def _asked(name: str, content: str, output_tokens: int) -> Conversation:
    body = {"messages": [{"role": "user", "content": content}]}
    return (Prompt(name, 0, "", body, output_tokens),)
