"""Where values stand in a text that change by themselves: times, ids, counters. Pure.

    Today is Monday, November 30, 2026. Ticket 9f8a2c41, turn 17.
             ~~~~~~~~~~~~~~~~~~~~~~~~~         ~~~~~~~~       ~~
             timestamp                         id             counter

Only what has a digit in it is looked at (and the days of the week, and long words of mixed case),
so that a text costs little beyond its numbers. It is liberal: `gpt-4` counts as a value. Those that
do not change do no harm, since a finding names one that did.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass

# What stands in a text in the place of a value.
BLANK = "\x01"
# A text of numbers only is no prose; beyond so many they stay as they are.
MAX_VALUES = 512
# A longer word is not looked into: patterns may go back and forth in it.
MAX_WORD = 256

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_WEEKDAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_TIME = (
    r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?"
    r"(?:\s?(?:Z|UTC|GMT|[ECMP][SD]T|CES?T|[+-]\d{2}:?\d{2})(?![A-Za-z0-9]))?"
)
_YEAR = r"(?:19|20)\d{2}"
_DAY = r"(?:3[01]|[12]\d|0?[1-9])"
_CJK_TIME = r"\d{1,2} ?[:時时点시] ?\d{1,2}(?:[:分분] ?(?:\d{1,2} ?[秒초]?)?)?"
_AT = rf"(?:(?:T|,?\s(?:at\s)?){_TIME})?"
_END = r"(?![A-Za-z0-9_]|-[A-Za-z0-9])"
# At a digit.
_TIMESTAMP = re.compile(
    "(?:"
    + "|".join(
        (
            rf"{_YEAR}[-/.](?:1[0-2]|0?[1-9])[-/.]{_DAY}{_AT}",
            rf"{_DAY}[./-]{_DAY}[./-](?:19|20)\d{{2}}{_AT}",
            rf"[0-3]\d[./-][0-3]\d[./-]\d{{2}}{_AT}",
            rf"{_YEAR}[年년] ?\d{{1,2}}[月월] ?\d{{1,2}}[日일](?: ?{_CJK_TIME})?",
            # As logs of web servers have it.
            rf"{_DAY}/{_MONTH}/{_YEAR}:{_TIME}",
            rf"{_DAY}(?:st|nd|rd|th)?\.?(?: of)?[ /-]{_MONTH}\.?(?:,?[ /-]{_YEAR})?{_AT}",
            rf"{_YEAR}-W\d{{2}}(?:-\d)?",
            rf"{_YEAR}-(?:1[0-2]|0[1-9])",
            _TIME,
            r"(?:1[0-2]|[1-9])\s?[AaPp]\.?[Mm]\b",
            r"(?:199|20[0-3])\d[01]\d[0-3]\d(?:[T_-]?[0-2]\d[0-5]\d[0-5]\dZ?)?",
            # Seconds, or thousandths, millionths and so on, from 2014 to 2033.
            r"1[4-9]\d{8}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?",
        )
    )
    + ")"
    + _END
)
# At a name of a month or of a day that stands in front of a digit.
_NAMED = re.compile(
    rf"(?:{_WEEKDAY}\.?,?\s+)?(?:"
    rf"{_MONTH}\.?\s+(?:{_DAY}(?:st|nd|rd|th)?(?![0-9]),?)?"
    rf"(?:\s*{_TIME})?(?:\s*{_YEAR})?{_AT}"
    rf"|{_TIMESTAMP.pattern})" + _END
)
_BEFORE = re.compile(rf"\b(?:{_WEEKDAY}\.?,?\s+)?(?:{_MONTH}\.?\s+)?$")
UUID_CHARS = 36
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9a-fA-F])")
# An address: of a network card, or of version 6.
_GROUPS = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{1,4}::?){3,7}[0-9a-fA-F]{1,4}(?![0-9A-Za-z:])"
)
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)*")
_WORD = re.compile(r"[A-Za-z0-9_+/=-]+")
_COUNTED = re.compile(r"[A-Za-z]*[\d/=_+-]+[A-Za-z]{0,3}")
_HEX = re.compile(r"[0-9a-fA-F]{8,}")
_DIGITS = re.compile(r"\d+")
_IN_WORDS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+/=-")
_LONG = re.compile(r"[A-Za-z_+/=-]{16,}")
_CAPITALS = re.compile("[A-Z]{2}")
_SMALL = re.compile("[a-z]")
_FEW_SMALL = 3
_STEMS = ("Mon", "Tues", "Wednes", "Thurs", "Fri", "Satur", "Sun")
_LEAD_CHARS = 28


class ValueClass(enum.Enum):
    """What kind of value it is; the stronger first, where two texts disagree."""

    UUID = "uuid"
    TIMESTAMP = "timestamp"
    ID = "id"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Span:
    """A value's place in a text: [start, end)."""

    start: int
    end: int
    kind: ValueClass


def values(text: str) -> list[Span]:
    """The values in the text, from its beginning, at most MAX_VALUES of them."""
    found: list[Span] = []
    at = 0
    for digits in _DIGITS.finditer(text):
        if digits.start() < at:
            continue
        span = _value(text, digits.start(), at)
        found.append(span)
        at = span.end
        if len(found) >= MAX_VALUES:
            break
    return _merged(found, _without_digits(text))


def masked(text: str, spans: Sequence[Span]) -> str:
    """The text with a blank in the place of each value."""
    if not spans:
        return text
    kept, at = [], 0
    for span in spans:
        kept.append(text[at : span.start])
        at = span.end
    kept.append(text[at:])
    return BLANK.join(kept)


def _value(text: str, digit: int, floor: int) -> Span:
    """The value that the digit belongs to; nothing of it lies in front of `floor`."""
    if digit > floor and text[digit - 1] in " \t,.":
        lead = _BEFORE.search(text, max(floor, digit - _LEAD_CHARS), digit)
        if lead and lead.end() > lead.start():
            named = _NAMED.match(text, lead.start())
            if named and named.end() > digit:
                return Span(named.start(), named.end(), ValueClass.TIMESTAMP)
    start = digit
    while start > floor and text[start - 1] in _IN_WORDS:
        start -= 1
    at = max(floor, start - _LEAD_CHARS)
    if ":" in text[at:start] or text[digit : digit + 6].find(":") > 0:
        groups = _GROUPS.search(text, at, digit + 48)
        if groups and groups.start() <= digit < groups.end():
            return Span(groups.start(), groups.end(), ValueClass.ID)
    is_apart = start == digit or not text[digit - 1].isalnum()
    if is_apart and (stamp := _TIMESTAMP.match(text, digit)):
        return Span(digit, stamp.end(), ValueClass.TIMESTAMP)
    word = _WORD.match(text, start)
    assert word is not None, "a digit is part of a word"
    return _word(text, start, digit, word.end())


def _word(text: str, start: int, digit: int, end: int) -> Span:
    """A word with a digit in it: an id, or a number with what belongs to it."""
    word = text[start:end]
    if len(word) > MAX_WORD:
        return Span(start, end, ValueClass.ID)
    if end - start >= UUID_CHARS and (uuid := _UUID.search(word)):
        return Span(start, start + uuid.end(), ValueClass.UUID)
    tail = word.rsplit("=", 1)[-1].rsplit("_", 1)[-1].rsplit("-", 1)[-1]
    is_hex = _HEX.fullmatch(tail) is not None and not tail.isdigit()
    if not is_hex and _COUNTED.fullmatch(word):
        number = _NUMBER.match(text, digit)
        end = max(end, number.end()) if number else end
        return Span(start, end, ValueClass.COUNTER)
    return Span(start, end, ValueClass.ID)


def _without_digits(text: str) -> list[Span]:
    """The days of the week, which are times, and long words that nobody would write."""
    found: list[Span] = []
    at = text.find("day")
    while at >= 0 and len(found) < MAX_VALUES:
        for stem in _STEMS:
            if text.endswith(stem, 0, at):
                found.append(Span(at - len(stem), at + 3, ValueClass.TIMESTAMP))
        at = text.find("day", at + 3)
    for word in _LONG.finditer(text):
        # In a name like `getUserById` no two capitals follow one another; CONSTANTS have no others.
        if _CAPITALS.search(word[0]) and len(_SMALL.findall(word[0])) >= _FEW_SMALL:
            found.append(Span(word.start(), word.end(), ValueClass.ID))
    return found


def _merged(found: list[Span], more: list[Span]) -> list[Span]:
    """Both, in order; of two that overlap, the one that begins first."""
    if not more:
        return found
    merged: list[Span] = []
    for span in sorted([*found, *more], key=lambda one: (one.start, -one.end)):
        if not merged or span.start >= merged[-1].end:
            merged.append(span)
    return merged
