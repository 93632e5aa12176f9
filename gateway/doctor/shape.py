"""A part of a prompt as digests and places of values: enough to say how two of them differ. Pure.

    form      the text as it is
    spaced    without space and invisible characters    equal: they differ in space only
    plain     without a template's marks                equal: in the template only
    masked    values blanked                            equal: in a time, an id, a counter
    bag       its words in order                        equal: in the order of something
    head, tail   its first and its last characters      equal: something in the middle

Each is wider than the one above, so `masked` alone finds all but the last two lines. Digests are
keyed: whoever reads the memory cannot try values out without the key, which ends with the process.
No text is kept.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.doctor import spacing, volatile
from gateway.doctor.volatile import BLANK, Span, ValueClass

SHORT = 8
# A part is looked at so far; what lies behind counts as it is.
MAX_CHARS = 32_768
# A list of tools is read whole, as JSON, which takes 45 ms per MB: longer ones are not.
MAX_TOOLS_CHARS = 65_536
# Values, and blocks of so many characters, that are told apart.
MAX_KEPT = 48
BLOCK_CHARS = 64
# Ends of a long text that are looked for by themselves.
END_CHARS = 96
LONG_CHARS = 256

_RUNS = re.compile(f"{BLANK}(?:[,:/.+_-]{{0,2}}{BLANK})+")
_WORDS = re.compile(rf"[^\W{BLANK}]+|{BLANK}")
_sorted = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class PartText:
    """A part as it is asked. name: as clients know it, `messages[0]`. window: of a plain text, how
    many of its characters count once space is gone; None: it is whole. static: tools, or a system
    or developer message.
    """

    name: str
    role: str
    text: str
    static: bool = False
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """Where a value stands in a part, and a digest of it."""

    offset: int
    length: int
    kind: ValueClass
    digest: bytes


@dataclass(frozen=True, slots=True)
class PartShape:
    """What is kept of a part; digests of eight bytes, b"" where there is nothing to tell.

    blocks: checksums of its characters, 64 by 64. tools: a digest of each, keys in order. window:
    characters that count, of a plain text; 0: all.
    """

    form: bytes
    spaced: bytes
    plain: bytes
    masked: bytes
    bag: bytes
    head: bytes
    tail: bytes
    values: tuple[Value, ...]
    blocks: bytes
    tools: tuple[bytes, ...]
    num_chars: int
    num_newlines: int
    num_edges: int
    num_odd: int
    window: int = 0

    @property
    def cost(self) -> int:
        """Bytes that it takes, about."""
        return 640 + 200 * len(self.values) + len(self.blocks) + 48 * len(self.tools)


class Shaper:
    """Makes shapes under one key."""

    def __init__(self, key: bytes):
        self._key = key

    def digest(self, *pieces: str) -> bytes:
        """Eight bytes that name the pieces."""
        state = hashlib.blake2b(digest_size=SHORT, key=self._key)
        for piece in pieces:
            state.update(piece.encode("utf-8", "surrogatepass"))
            state.update(b"\0")
        return state.digest()

    def shape(self, part: PartText) -> PartShape:
        """What is kept of the part."""
        text = part.text[:MAX_CHARS]
        window = part.window
        spans = volatile.values(text)
        bare = volatile.masked(text, spans)
        spaced = spacing.squeezed(text)[:window]
        has_marks = "<" in text or "[" in text or ":" in text
        plain = spacing.squeezed(spacing.unmarked(text))[:window] if has_marks else spaced
        blank = plain
        if spans:
            unmarked = spacing.unmarked(bare) if has_marks else bare
            blank = _RUNS.sub(BLANK, spacing.squeezed(unmarked))[:window]
        rest = self._rest(part)
        is_tools = part.role == "tools"
        is_long = part.static and not is_tools and len(blank) >= LONG_CHARS
        in_order = "{" in text or is_tools
        digest, role = self.digest, part.role
        return PartShape(
            form=digest(role, part.text if window is None else text[:window]),
            spaced=digest(role, spaced, *rest),
            plain=digest(role, plain, *rest),
            masked=digest(role, blank, *rest),
            bag=digest(role, *sorted(_WORDS.findall(bare)), *rest) if in_order else b"",
            head=digest(role, "head", blank[:END_CHARS]) if is_long else b"",
            tail=digest(role, "tail", blank[-END_CHARS:]) if is_long else b"",
            values=self._values(text, spans),
            blocks=_blocks(text),
            tools=self._tools(part),
            num_chars=len(part.text),
            num_newlines=text.count("\n") + text.count("\r"),
            num_edges=spacing.num_edges(text),
            num_odd=spacing.num_odd(text),
            window=window or 0,
        )

    def _rest(self, part: PartText) -> tuple[str, ...]:
        """A digest of what lies behind the characters that are looked at; of a plain text none."""
        rest = part.text[MAX_CHARS:] if part.window is None else ""
        return (self.digest(rest).hex(),) if rest else ()

    def _values(self, text: str, spans: Sequence[Span]) -> tuple[Value, ...]:
        return tuple(
            Value(
                span.start,
                span.end - span.start,
                span.kind,
                self.digest(text[span.start : span.end]),
            )
            for span in spans[:MAX_KEPT]
        )

    def _tools(self, part: PartText) -> tuple[bytes, ...]:
        if part.role != "tools" or len(part.text) > MAX_TOOLS_CHARS:
            return ()
        try:
            tools = msgspec.json.decode(part.text)
        except msgspec.DecodeError:
            return ()
        if not isinstance(tools, list):
            return ()
        return tuple(self.digest(_sorted.encode(tool).decode()) for tool in tools)


def _blocks(text: str) -> bytes:
    """Checksums of the first blocks, four bytes each."""
    data = text[: BLOCK_CHARS * MAX_KEPT].encode("utf-32-le", "surrogatepass")
    width = BLOCK_CHARS * 4
    return array(
        "I", [zlib.crc32(data[at : at + width]) for at in range(0, len(data), width)]
    ).tobytes()
