"""What this worker has answered, text and ids: a later prompt that goes on from it takes the ids.

A model rarely writes the tokens that the tokenizer would make of its text. Once a client sends that
text back, only the ids that were generated are those of the K/V in the pages:

    text                 ... of the British Monarchs at Windsor
    generated            ... | of| the| British| Mon|arch|s| at| Windsor
    the tokenizer's own  ... | of| the| British| Monarch|s| at| Windsor

A text is known by whose it is and by the ids in front of it, so ids are taken over only where all
in front of them is the same, token for token. No text is taken for another: they're compared.
"""

from __future__ import annotations

import enum
import sys
import threading
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from worker.text.agreement import common_length

# What an entry costs beside its text and its ids: keys, digest, places in three tables.
ENTRY_BYTES = 512
# Texts looked at before a prompt is taken for a new one: of those that begin alike, the longest
# that the prompt begins with is nearly always the first.
MAX_TRIES = 8


class TurnIds(enum.Enum):
    """Whose ids a chat's last answer has in the next prompt."""

    EXACT = "exact"
    RECORDED = "recorded"
    MISSED = "missed"


class Place(NamedTuple):
    """Where a text stands, and whose it is.

    behind: digest of the ids in front of it, in a chat; None: a plain text, which begins here.
    """

    namespace: bytes
    behind: bytes | None


@dataclass(frozen=True, slots=True)
class Said:
    """A text, and the ids that it stood in when it was generated."""

    text: str
    ids: array[int]

    @property
    def num_bytes(self) -> int:
        """What remembering it costs."""
        return ENTRY_BYTES + sys.getsizeof(self.text) + len(self.ids) * self.ids.itemsize


@dataclass(frozen=True, slots=True)
class Opening:
    """What an answer goes on from: the end of a prompt.

    ids: of the text, the first `num_lead` of them being none of it (BOS). inner: text stands in
    front of it.
    """

    place: Place
    text: str
    ids: array[int]
    inner: bool
    num_lead: int = 0


class TurnMemory:
    """Keeps answers up to a total weight in bytes, the least recently used leaving first.

    Of two answers in the same words at the same place the first stays, so that the later turns of
    a chat don't move. Safe to use from several threads.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[tuple[Place, str], Said] = OrderedDict()
        # Of each place, in order: what a text begins with stands in front of it.
        self._texts: dict[Place, list[str]] = {}
        self._namespaces: Counter[bytes] = Counter()
        self._lock = threading.Lock()
        self.num_bytes = 0

    @property
    def is_on(self) -> bool:
        """Whether it may keep anything."""
        return self._max_bytes > 0

    def knows(self, namespace: bytes) -> bool:
        """Whether there is anything of this namespace's."""
        return namespace in self._namespaces

    def put(self, place: Place, said: Said) -> None:
        """Keeps an answer; one that weighs more than all may is not kept."""
        if said.num_bytes > self._max_bytes:
            return
        with self._lock:
            key = (place, said.text)
            if key in self._entries:
                self._entries.move_to_end(key)
                return
            self._entries[key] = said
            insort(self._texts.setdefault(place, []), said.text)
            self._namespaces[place.namespace] += 1
            self.num_bytes += said.num_bytes
            while self.num_bytes > self._max_bytes:
                self._forget_oldest()

    def find(self, place: Place, text: str) -> Said | None:
        """Returns the longest answer here that the text begins with; it's in use thereby."""
        with self._lock:
            texts = self._texts.get(place)
            for _ in range(MAX_TRIES if texts else 0):
                assert texts is not None
                index = bisect_right(texts, text)
                if not index:
                    return None
                found = texts[index - 1]
                if text.startswith(found):
                    self._entries.move_to_end((place, found))
                    return self._entries[(place, found)]
                text = text[: common_length(text, found)]
            return None

    def _forget_oldest(self) -> None:
        (place, text), said = self._entries.popitem(last=False)
        texts = self._texts[place]
        del texts[bisect_left(texts, text)]
        if not texts:
            del self._texts[place]
        self._namespaces[place.namespace] -= 1
        if not self._namespaces[place.namespace]:
            del self._namespaces[place.namespace]
        self.num_bytes -= said.num_bytes


class Recall:
    """One request's look into the memory: what it has found stays so until it is prepared."""

    def __init__(self, memory: TurnMemory, namespace: bytes) -> None:
        self._memory = memory
        self._namespace = namespace
        self._found: dict[tuple[bytes | None, str], Said | None] = {}

    def find(self, behind: bytes | None, text: str) -> Said | None:
        """Returns the longest answer behind these ids that the text begins with."""
        key = (behind, text)
        if key not in self._found:
            self._found[key] = self._memory.find(Place(self._namespace, behind), text)
        return self._found[key]
