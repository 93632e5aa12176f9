"""A chat or a text that goes on turn by turn, answered with any ids a test likes. No engine."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.intake import Intake
from worker.prepared import Prepared
from worker.request import Stopping
from worker.sequence import unpack_tokens
from worker.stream import RequestStream
from worker.submission import ChatInput, NamedBoundary, Submission, Unit
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer
from worker.text.turns import TurnMemory

Message = dict[str, Any]
MAX_LEN = 1 << 20


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def chat_input(messages: Sequence[Message]) -> ChatInput:
    return ChatInput(json.dumps(list(messages)).encode())


@dataclass
class Talk:
    """A worker's way in, with a memory of answers; `fresh` has none."""

    tokenizer: Tokenizer
    template: ChatTemplate
    memory: TurnMemory
    intake: Intake
    fresh: Intake

    @classmethod
    def of(cls, folder: Path, tokenizer: Tokenizer, max_bytes: int = 1 << 22) -> Talk:
        template, memory = ChatTemplate.load(folder, tokenizer), TurnMemory(max_bytes)
        intakes = [
            Intake(tokenizer, template, MAX_LEN, random.Random(0), turns)
            for turns in (memory, TurnMemory(0))
        ]
        return cls(tokenizer, template, memory, *intakes)

    def prepared(
        self, prompt: ChatInput | str, places: Sequence[int] = (), namespace: bytes = b""
    ) -> Prepared:
        """Returns the prompt; boundary k is the k-th place's."""
        unit = Unit.CHARS if isinstance(prompt, str) else Unit.MESSAGES
        boundaries = tuple(
            NamedBoundary(bytes([number + 1]), place, unit) for number, place in enumerate(places)
        )
        return self.intake.prepare(
            Submission(1, prompt, namespace=namespace, boundaries=boundaries, seed=0)
        )

    def answer(self, prepared: Prepared, ids: Sequence[int]) -> str:
        """Returns what a client is given of a chat's answer in these ids, which is remembered."""
        return self._said(prepared, ids, ChatInput(b"[]"))

    def continued(self, prepared: Prepared, ids: Sequence[int]) -> str:
        """Returns the same for a plain text that goes on in these ids."""
        return self._said(prepared, ids, "")

    def own(self, prompt: ChatInput | str) -> list[int]:
        """The prompt's ids without any memory."""
        return ids_of(self.fresh.prepare(Submission(1, prompt, seed=0)))

    def spelled(self, ids: Sequence[int]) -> bytes:
        return b"".join(map(self.tokenizer.token_bytes, ids))

    def _said(self, prepared: Prepared, ids: Sequence[int], kind: ChatInput | str) -> str:
        submission, ends = Submission(1, kind), prepared.stopping.stop_token_ids
        stopping = Stopping(max(len(ids), 1), ends)
        [choice] = RequestStream.open(submission, 1, stopping, self.tokenizer).choices
        for token in ids:
            choice.push(token, stopping.ends(token, choice.num_tokens + 1))
        text = "".join(choice.given)
        if prepared.opening is not None:
            dropped = choice.detokenizer.dropped_space
            self.intake.remember(prepared.opening, choice.tokens, text, drops_space=dropped)
        return text


def ids_of(prepared: Prepared) -> list[int]:
    return unpack_tokens(prepared.prompt)
