"""One branch of a program: its text and its token ids, as they grow (step 7).

    ids       |<---- literal ---->|<- generated ->|<- literal ->|<- generated ->|
    pending                                                                     |<- literal ->

Ids that were generated stay. Literal text is joined while nothing is generated in between, and
encoded as one piece behind what is there: special tokens that it spells stay text. In a chat the
model's template writes what stands between the messages' contents.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from worker.errors import ChatUnsupported, ContextLengthExceeded, InvalidRequest
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer


class Writer:
    """Writes for one model. Safe to use from several threads. template None: it knows no chats."""

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, max_model_len: int
    ) -> None:
        self.tokenizer = tokenizer
        self.max_model_len = max_model_len
        self._template = template

    def check_room(self, num_chars: int) -> None:
        """Raises ContextLengthExceeded where a text of so many characters surely doesn't fit."""
        fewest = self.tokenizer.fewest_of(num_chars)
        if fewest > self.max_model_len:
            raise ContextLengthExceeded(f"at least {fewest}", self.max_model_len, "program")

    @property
    def template(self) -> ChatTemplate:
        """The chat template. Raises ChatUnsupported."""
        if self._template is None:
            raise ChatUnsupported
        return self._template

    def warm(self) -> None:
        """Finds once, in a moment, what `grows` looks for."""
        self._spelled  # noqa: B018

    def literal(self, text: str, *, inner: bool) -> list[int]:
        """Returns a text's ids behind others, or with what the tokenizer puts in front of all."""
        if inner:
            return self.tokenizer.encode_inner(text)
        return [*self.tokenizer.lead, *self.tokenizer.encode_literal(text)]

    def grows(self, token: int) -> str | None:
        """Returns a token's text where a longer token begins with it, None where none does."""
        spelled = self.tokenizer.token_bytes(token)
        try:
            text = spelled.decode()
        except UnicodeDecodeError:
            return None
        if not text or token in self.tokenizer.special_ids:
            return None
        place = bisect_right(self._spelled, spelled)
        longer = place < len(self._spelled) and self._spelled[place].startswith(spelled)
        return text if longer else None

    @cached_property
    def _spelled(self) -> list[bytes]:
        """What the tokens that are text spell, in order."""
        tokenizer = self.tokenizer
        known = set(range(tokenizer.vocab_size)) - tokenizer.special_ids
        return sorted({tokenizer.token_bytes(one) for one in known})


@dataclass(frozen=True, slots=True)
class Start:
    """What a generation goes on from: ids, and the text with which it must begin."""

    ids: list[int]
    prefix: str = ""


@dataclass(slots=True)
class _Message:
    role: str
    content: str = ""

    def told(self) -> dict[str, str]:
        return {"role": self.role, "content": self.content}


@dataclass(slots=True)
class Tape:
    """A branch's. messages: those that are over; current: the one under way. num_chars: of it all.

    anchor: the last message whose content was generated into the ids. is_open: the ids reach into
    the current message.
    """

    writer: Writer
    ids: list[int] = field(default_factory=list)
    pending: str = ""
    messages: list[_Message] = field(default_factory=list)
    current: _Message | None = None
    anchor: int | None = None
    is_open: bool = False
    plain: list[str] = field(default_factory=list)
    num_chars: int = 0

    def copy(self) -> Tape:
        """Returns another branch that goes on from here."""
        current = None if self.current is None else replace(self.current)
        return replace(
            self,
            ids=list(self.ids),
            messages=list(self.messages),
            current=current,
            plain=list(self.plain),
        )

    @property
    def text(self) -> str:
        """Everything that was appended; messages one below the other."""
        if not self.messages and self.current is None:
            return "".join(self.plain)
        whole = [*self.messages, *([self.current] if self.current else [])]
        return "\n".join(message.content for message in whole)

    @property
    def num_unread(self) -> int:
        """Characters that are read before the next generation."""
        is_closed = self.current is not None and not self.is_open
        told = sum(len(one.content) for one in self.messages) if is_closed else 0
        return told + len(self.pending)

    def append(self, text: str) -> None:
        """Appends literal text. Raises ContextLengthExceeded."""
        self._extend(text)
        if self.current is None or self.current.role == "assistant":
            self.pending += text

    def begin(self, role: str) -> None:
        """A message begins."""
        self.current = _Message(role)
        self.pending = ""

    def end(self) -> None:
        """The message under way is over."""
        assert self.current is not None
        if self.is_open:
            self.ids = self._with(self.pending)
            self.anchor = len(self.messages)
        self.messages.append(self.current)
        self.current, self.is_open, self.pending = None, False, ""

    def open(self) -> None:
        """The ids reach to where something may be generated. Raises InvalidRequest."""
        if self.current is None or self.is_open:
            return
        told = [message.told() for message in self.messages]
        if not told:
            raise InvalidRequest("program", "An assistant's message needs one before it.")
        template = self.writer.template
        if self.anchor is None:
            self.ids = template.encode(told).ids
        else:
            self.ids += template.following(told, self.anchor)
        self.is_open = True

    def start(self, *, heals: bool) -> Start:
        """Returns what a generation goes on from. Raises InvalidRequest where nothing is there."""
        self.open()
        ids = self._with(self.pending)
        if not ids:
            raise InvalidRequest("program", "Something must stand before what is generated.")
        text = self.writer.grows(ids[-1]) if heals and self.pending and len(ids) > 1 else None
        if text is None or not self.pending.endswith(text):
            return Start(ids)
        return Start(ids[:-1], text)

    def choice(self, text: str) -> list[int]:
        """Returns the ids with this text behind them; `open` was called."""
        return self._with(self.pending + text)

    def said(self, start: Start, tokens: Sequence[int], value: str) -> None:
        """Takes a generation over: as many tokens as make the value, and literal text behind.

        value: without the start's prefix.
        """
        whole = start.prefix + value
        kept, text = self._kept(tokens, whole)
        self.ids = [*start.ids, *kept]
        self.pending = whole[len(text) :]
        self._extend(value)

    def _kept(self, tokens: Sequence[int], whole: str) -> tuple[list[int], str]:
        """The first tokens that spell a beginning of the text, and that beginning."""
        wanted, tokenizer = whole.encode(), self.writer.tokenizer
        spelled = b""
        kept: list[int] = []
        sure = 0
        for token in tokens:
            if token in tokenizer.special_ids:
                break
            spelled += tokenizer.token_bytes(token)
            if not wanted.startswith(spelled):
                break
            kept.append(token)
            if _is_whole(spelled):
                sure = len(kept)
        text = b"".join(map(tokenizer.token_bytes, kept[:sure])).decode()
        return kept[:sure], text

    def _with(self, text: str) -> list[int]:
        if not text and self.ids:
            return list(self.ids)
        return [*self.ids, *self.writer.literal(text, inner=bool(self.ids))]

    def _extend(self, text: str) -> None:
        self.num_chars += len(text)
        self.writer.check_room(self.num_chars)
        if self.current is not None:
            self.current.content += text
        else:
            self.plain.append(text)


def _is_whole(spelled: bytes) -> bool:
    try:
        spelled.decode()
    except UnicodeDecodeError:
        return False
    return True


def packed(ids: Sequence[int]) -> bytes:
    """Returns ids as they travel."""
    return array("i", ids).tobytes()
