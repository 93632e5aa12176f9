"""One long text in the pages of a real model, decoded behind with any budget.

The text is prose that every Python brings along (the language reference in `pydoc_data`), with
facts in it that only it can tell. Models are stretched beyond their trained length by YaRN.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from pydoc_data.topics import topics  # type: ignore[import-untyped,unused-ignore]

import torch

from kernels.interface import AttentionBackend, AttentionBatch, AttentionParams
from worker.model.formats import Formats
from worker.model.loading import LoadOptions, load
from worker.text.tokenizer import Tokenizer

PAGE = 16
CHUNK = 512
ROOM = 256  # tokens that may be decoded behind the text

FACTS = {
    "The pass key is": "76150",
    "The king's favorite fruit is the": "mango",
    "The name of the ship is": "Aurora",
    "The treasure is buried under the old": "bridge",
    "The train to the sea leaves at": "7:45",
    "My dog's name is": "Biscuit",
    "Her telephone number is": "555-8319",
    "The color of the secret door is": "purple",
    "The combination of the safe is": "31-07-92",
    "The winner of the race was": "Lucas",
}
INTRO = "There is important info hidden inside a lot of irrelevant text. Find it and memorize it.\n"
QUESTION = "\nWhat was it that I had to remember? "


@dataclass(frozen=True, slots=True)
class Haystack:
    """ids: the text. told: behind how many of them each fact is known."""

    ids: list[int]
    told: dict[str, int]


def haystack(tokenizer: Tokenizer, length: int) -> Haystack:
    """Returns a text of so many tokens; the first facts come early, for short parts of it."""
    prose = cycle(tokenizer.encode_literal("\n\n".join(topics[key] for key in sorted(topics))))
    ids, told = list(tokenizer.encode_literal(INTRO)), {}
    for number, (fact, answer) in enumerate(FACTS.items(), start=1):
        place = int(length * 0.9 * (number / len(FACTS)) ** 2)
        ids += islice(prose, max(place - len(ids), 0))
        ids += tokenizer.encode_literal(f"\n{fact} {answer}. Remember it: {fact} {answer}.\n")
        told[fact] = len(ids)
    return Haystack([*ids, *islice(prose, max(length - len(ids), 0))][:length], told)


@contextmanager
def stretched(folder: Path, positions: int) -> Iterator[Path]:
    """A folder of the same model for so many positions, by YaRN where it was trained for fewer."""
    config = json.loads((folder / "config.json").read_text())
    trained = config["max_position_embeddings"]
    if positions > trained:
        theta = config.get("rope_parameters", config)["rope_theta"]
        config |= {
            "max_position_embeddings": positions,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": theta,
                "factor": positions / trained,
                "original_max_position_embeddings": trained,
            },
        }
    with tempfile.TemporaryDirectory(prefix="pando-long-") as name:
        for file in folder.iterdir():
            (Path(name) / file.name).symlink_to(file.absolute())
        (Path(name) / "config.json").unlink()
        (Path(name) / "config.json").write_text(json.dumps(config))
        yield Path(name)


class Timed:
    """An attention backend that sums up the seconds it attends."""

    def __init__(self, backend: AttentionBackend) -> None:
        self._backend = backend
        self.name, self.bitwise, self.shape = backend.name, backend.bitwise, backend.shape
        self.write, self.fill_pages = backend.write, backend.fill_pages
        self.copy_pages = backend.copy_pages
        self.seconds = 0.0

    def attend(
        self, layer: int, query: torch.Tensor, batch: AttentionBatch, params: AttentionParams
    ) -> torch.Tensor:
        """As the backend's."""
        began = time.perf_counter()
        out = self._backend.attend(layer, query, batch, params)
        self.seconds += time.perf_counter() - began
        return out


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one decode step, and of them in attention."""

    whole_s: float
    attention_s: float


@dataclass(frozen=True, slots=True)
class Room:
    """length: of the text at most. copies: of it, for steps of several sequences."""

    length: int
    copies: int = 0
    threads: int = 2


class Reader:
    """A text's K/V in the first pages of a pool, and copies of it behind them."""

    def __init__(self, folder: Path, room: Room, formats: Formats) -> None:
        self._pages = -(-(room.length + ROOM) // PAGE)
        options = LoadOptions(
            num_pages=self._pages * (room.copies + 1),
            page_size=PAGE,
            threads=room.threads,
            formats=formats,
        )
        self._model = load(folder, options)
        self._timed = Timed(self._model.backend)
        self._model.backend = self._timed
        self._copies = room.copies
        self.length = 0

    def kv_bytes(self, *, sketched: bool) -> int:
        """What the text's K/V takes, with or without bounds of keys."""
        shape = replace(self._timed.shape, sketched=sketched)
        return shape.bytes_per_token * self.length

    def extend(self, ids: list[int]) -> None:
        """Computes more of the text, all of it over all that comes before."""
        for first in range(0, len(ids), CHUNK):
            part = ids[first : first + CHUNK]
            self._forward([part], self.length, 0)
            self.length += len(part)

    def logprobs(self, ids: list[int], budget: int) -> torch.Tensor:
        """Decodes the ids behind the text one by one; float64 [len(ids), vocab] of what follows."""
        rows = [
            self._forward([[one]], self.length + place, budget)[0] for place, one in enumerate(ids)
        ]
        return torch.log_softmax(torch.stack(rows).double(), dim=-1)

    def answer(self, ids: list[int], count: int, budget: int) -> list[int]:
        """Decodes the ids behind the text, then the likeliest `count` tokens."""
        made: list[int] = []
        following = self.logprobs(ids, budget)[-1]
        for place in range(len(ids), len(ids) + count):
            made.append(int(following.argmax()))
            following = self._forward([[made[-1]]], self.length + place, budget)[0]
        return made

    def spread(self) -> None:
        """Copies the text's pages to all copies."""
        used = list(range(-(-self.length // PAGE)))
        for copy in range(1, self._copies + 1):
            self._timed.copy_pages(used, [page + copy * self._pages for page in used])

    def step(self, budget: int, sequences: int) -> Step:
        """Times a decode step of so many copies of the text, each on its own pages."""
        began, self._timed.seconds = time.perf_counter(), 0.0
        self._forward([[7]] * sequences, self.length, budget)
        return Step(time.perf_counter() - began, self._timed.seconds)

    def _forward(self, rows: list[list[int]], start: int, budget: int) -> torch.Tensor:
        """Logits behind each sequence's tokens, which begin at a position; one copy each."""
        count, end = len(rows[0]), start + len(rows[0])
        first_page = torch.arange(len(rows), dtype=torch.int32)[:, None] * self._pages
        positions = torch.arange(start, end).repeat(len(rows))
        batch = AttentionBatch(
            query_start=torch.arange(len(rows) + 1, dtype=torch.int32) * count,
            context_len=torch.full((len(rows),), end, dtype=torch.int32),
            block_table=first_page + torch.arange(self._pages, dtype=torch.int32),
            slot_mapping=positions + first_page.long().repeat_interleave(count, 0).flatten() * PAGE,
            page_size=PAGE,
            max_query_len=count,
            max_context_len=end,
            budget=torch.full((len(rows),), budget, dtype=torch.int32) if budget else None,
        )
        ids = torch.tensor([one for row in rows for one in row])
        last = torch.arange(1, len(rows) + 1) * count - 1
        with torch.inference_mode():
            return self._model.forward(ids, positions, batch, last)
