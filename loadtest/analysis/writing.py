"""Prompts as symbols: a tokenizer's ids, or bytes of which so many are called a token.

Chats are written as ChatML, tools in front; a model's own template adds a few tokens a message, and
changes nothing of what is shared.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from loadtest.analysis.forms import Blocks, Chat, Ids, NoRequest, Prompt
from loadtest.analysis.tree import Grain, Mark
from loadtest.errors import UnreadableLog
from worker.errors import ModelUnavailable
from worker.model.files import default_cache_folder, resolve
from worker.text.tokenizer import Tokenizer

BYTES_PER_TOKEN = 4
# A plain prompt is routed by beginnings of so many tokens.
LEAD_TOKENS = 512
REMEMBERED_BYTES = 64 * 1024 * 1024
_sorted = msgspec.json.Encoder(order="sorted")
_plain = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Written:
    """A prompt. length: its units. marks: where messages end, the last one at its end."""

    symbols: bytes
    length: int
    marks: tuple[Mark, ...] = ()


class Pen(Protocol):
    """How texts become symbols. counted: what is said of its tokens."""

    counted: str
    grain: Grain

    def write(self, text: str) -> bytes:
        """The text's symbols."""
        ...


class BytePen:
    """The text's own bytes."""

    def __init__(self, bytes_per_token: int = BYTES_PER_TOKEN):
        self.counted = f"a token is taken as {bytes_per_token} bytes of text"
        self.grain = Grain(1, 1, bytes_per_token)

    def write(self, text: str) -> bytes:
        """As Pen."""
        return text.encode("utf-8", "surrogatepass")


class TokenPen:
    """A tokenizer's ids, four bytes each; texts that come again are not encoded again."""

    def __init__(self, tokenizer: Tokenizer, name: str):
        self.counted = f"by the tokenizer of {name}"
        self.grain = Grain(4, 1, 1)
        self.tokenizer = tokenizer
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._held = 0

    def write(self, text: str) -> bytes:
        """As Pen."""
        if (found := self._known.get(text)) is not None:
            self._known.move_to_end(text)
            return found
        found = array("i", self.tokenizer.encode_literal(text)).tobytes()
        self._known[text] = found
        self._held += len(found) + 4 * len(text)
        while self._held > REMEMBERED_BYTES:
            old, ids = self._known.popitem(last=False)
            self._held -= len(ids) + 4 * len(old)
        return found


def pen_of(model: str | None, bytes_per_token: int = BYTES_PER_TOKEN) -> BytePen | TokenPen:
    """A tokenizer's pen: of a folder, a GGUF file or the default model. Raises UnreadableLog."""
    if model is None:
        return BytePen(bytes_per_token)
    try:
        folder = Path(model)
        if not (folder / "tokenizer.json").is_file():
            folder = resolve(model, default_cache_folder())
        return TokenPen(Tokenizer.load(folder), Path(model).name or model)
    except ModelUnavailable as error:
        raise UnreadableLog(f"--tokenizer: {error}") from error


class Script:
    """Writes a log's prompts, which are all of one kind: the first one's."""

    def __init__(self, pen: Pen):
        self._pen = pen
        self._kind = ""
        self.grain = pen.grain
        self.counted = pen.counted

    def write(self, prompt: Prompt) -> Written:
        """The prompt's symbols. Raises NoRequest where it is of another kind than the first."""
        self._check(prompt)
        if isinstance(prompt, Blocks):
            return Written(prompt.packed, prompt.num_tokens)
        if isinstance(prompt, Chat):
            return self._chat(prompt)
        if isinstance(prompt, Ids):
            return self._marked(prompt.ids.tobytes())
        return self._marked(self._pen.write(prompt.text))

    @property
    def has_texts(self) -> bool:
        """Whether prompts are more than ids of blocks."""
        return not self._kind.startswith("blocks")

    def _check(self, prompt: Prompt) -> None:
        kind = self._kind_of(prompt)
        if not self._kind:
            self._kind = kind
            if isinstance(prompt, Blocks):
                self.grain = Grain(8, prompt.block, 1)
                self.counted = "as the log counts them"
            elif kind == "token ids":
                self.grain, self.counted = Grain(4, 1, 1), "as the log counts them"
        if kind != self._kind:
            raise NoRequest(f"it has {kind}, the lines before {self._kind}")

    def _kind_of(self, prompt: Prompt) -> str:
        if isinstance(prompt, Blocks):
            return f"blocks of {prompt.block} tokens"
        is_exact = self._pen.grain.width > 1
        return "token ids" if isinstance(prompt, Ids) and not is_exact else "texts"

    def _chat(self, chat: Chat) -> Written:
        pieces, marks, length = [], list[Mark](), 0
        width, write = self.grain.width, self._pen.write
        if chat.tools:
            pieces.append(write(f"<|tools|>{_plain.encode(chat.tools).decode()}\n"))
            length += len(pieces[-1]) // width
            marks.append(Mark(length, "tools"))
        for message in chat.messages:
            piece = write(_chatml(message))
            pieces.append(piece)
            length += len(piece) // width
            marks.append(Mark(length, str(message["role"])))
        return Written(b"".join(pieces), length, tuple(marks))

    def _marked(self, symbols: bytes) -> Written:
        """A plain prompt, with a mark every so many tokens."""
        if not symbols:
            raise NoRequest("its prompt is empty")
        length = len(symbols) // self.grain.width
        step = LEAD_TOKENS * self.grain.per_token
        marks = [Mark(end, "prompt") for end in range(step, length, step)]
        return Written(symbols, length, (*marks, Mark(length, "prompt")))


def _chatml(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(
            str(part["text"]) if "text" in part else _sorted.encode(part).decode()
            for part in content
        )
    rest = {key: one for key, one in message.items() if key not in ("role", "content")}
    told = f"\n{_plain.encode(rest).decode()}" if rest else ""
    return f"<|im_start|>{message['role']}\n{content or ''}{told}<|im_end|>\n"
