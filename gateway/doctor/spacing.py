"""A text without what does not count in it: space, invisible characters, a template's marks. Pure.

squeezed    no white space, no invisible characters, no marks of beginning and end
unmarked    besides, none of the marks that a chat template puts between messages
"""

from __future__ import annotations

import re

_INVISIBLE = dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060\u00ad\u200e\u200f"))
# Besides the no-break space, which is white space all the same.
_ODD = re.compile("[\ufeff\u200b\u200c\u200d\u2060\u00ad\u200e\u200f\u00a0]")
_EDGES = re.compile(
    r"</?s>|<[be]os>|\[[BE]OS\]"
    r"|<\|(?:begin_of_text|end_of_text|endoftext|startoftext|begin_of_sentence|bos|eos)\|>"
)
_ROLE = r"(?:\s*(?:system|user|assistant|model|developer|tool|human)\b)?"
_MARKS = re.compile(
    rf"<\|[A-Za-z_]+\|>{_ROLE}|<(?:start|end)_of_turn>{_ROLE}"
    r"|\[/?[A-Z][A-Z_]+\]|<</?SYS>>"
    r"|^[ \t]*(?:#{1,3}[ \t]*)?"
    r"(?:System|Human|User|Assistant|AI|Instruction|Response|Input)[ \t]*:",
    re.MULTILINE,
)


def squeezed(text: str) -> str:
    """The text without white space, invisible characters and marks of beginning or end."""
    if not text.isascii():
        text = text.translate(_INVISIBLE)
    if "<" in text or "[" in text:
        text = _EDGES.sub("", text)
    return "".join(text.split())


def unmarked(text: str) -> str:
    """The text without a chat template's marks, and the roles that they name."""
    return _MARKS.sub("", _EDGES.sub("", text))


def num_edges(text: str) -> int:
    """Marks of beginning and end in the text, and marks of byte order."""
    return len(_EDGES.findall(text)) + text.count("\ufeff")


def num_odd(text: str) -> int:
    """Characters in the text that nobody sees."""
    return 0 if text.isascii() else len(_ODD.findall(text))
