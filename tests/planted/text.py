"""Faults of text on its way in and out: characters, stop strings, special tokens, boundaries."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

STOPS = "tests/worker/text/test_stops.py"
CHOICE = "tests/worker/test_choice.py"
STREAM = "tests/worker/test_stream.py"
DETOKENIZER = "tests/worker/text/test_detokenizer.py"
CHAT = "tests/worker/text/test_chat.py"

stops = Room("worker/text/stops.py", (STOPS,))
detokenizer = Room("worker/text/detokenizer.py", (DETOKENIZER,))
choice = Room("worker/choice.py", (CHOICE, STREAM))
stream = Room("worker/stream.py", (STREAM,))
settled = Room("worker/text/settled.py", ("tests/worker/text/test_settled.py",))
marks = Room("worker/text/marks.py", (CHAT,))
request = Room("worker/request.py", ("tests/worker/test_sequence.py", STREAM, CHOICE))

FAULTS: tuple[Fault, ...] = (
    stops.fault(
        "stop string leaks",
        "The beginning of a stop string leaves before the rest has come.",
        "                return begin\n",
        "                return len(held)\n",
    ),
    stops.fault(
        "shortest stop wins",
        "Of two that begin at one place the shorter one ends the text.",
        "sorted(set(stops), key=len, reverse=True)",
        "sorted(set(stops), key=len)",
    ),
    stops.fault(
        "stop found before a longer one is ruled out",
        "A stop ends the text though an earlier one may still come.",
        "if match is not None and match < begin:",
        "if match is not None:",
    ),
    stops.fault(
        "stop string always shown",
        "The stop string is part of the answer, asked for or not.",
        "end = match + len(stop) if self._include else match",
        "end = match + len(stop)",
    ),
    stops.fault(
        "held text lost at the end",
        "What might have begun a stop string never leaves.",
        "return Released(held) if match is None else self._stop(held, match)",
        'return Released("") if match is None else self._stop(held, match)',
    ),
    stops.fault(
        "held text not searched at the end",
        "A stop string that stands at the very end is shown.",
        "        match = self._match(held)\n        return",
        "        match = None\n        return",
    ),
    stops.fault(
        "text after the stop",
        "What is generated behind a stop string leaves as well.",
        "        self._stopped = True\n",
        "",
    ),
    stops.fault(
        "some stop, not the earliest",
        "Of two stops the one that was asked for first ends the text.",
        "return min(found, default=None)",
        "return found[0] if found else None",
    ),
    detokenizer.fault(
        "half a character leaves",
        "A character of several tokens comes as replacement marks.",
        "return self._decoder.decode(data)",
        'return data.decode(errors="replace")',
    ),
    detokenizer.fault(
        "unfinished character lost",
        "What is left at the end is dropped, so that text and tokens differ.",
        'return self._decoder.decode(b"", final=True)',
        'return ""',
    ),
    detokenizer.fault(
        "special tokens shown",
        "The end of a turn is part of the answer.",
        "for token in ids if token not in hidden",
        "for token in ids",
    ),
    detokenizer.fault(
        "space dropped in front of every piece",
        "Words of a stream run together.",
        "            self._drops_space = False\n        return",
        "        return",
    ),
    choice.fault(
        "token that ends is shown",
        "The end-of-sequence token's text is part of the answer.",
        "tokens[:-1] if finish is FinishReason.STOP else tokens",
        "tokens",
    ),
    choice.fault(
        "stop string before min_tokens",
        "A stop string ends a choice that must go on.",
        "early = max(self.min_tokens - self.num_tokens, 0)",
        "early = 0",
    ),
    choice.fault(
        "text given out twice",
        "A continued stream says again what its client has.",
        "self.owed = text[resumed.text_chars :]",
        "self.owed = text",
    ),
    choice.fault(
        "owed text lost",
        "A continued stream leaves out what was held back when it broke off.",
        'text, self.owed = self.owed + text, ""',
        'self.owed = ""',
    ),
    choice.fault(
        "owed text with every token",
        "A continued stream repeats what was held back.",
        'text, self.owed = self.owed + text, ""',
        "text = self.owed + text",
    ),
    choice.fault(
        "tokens behind the end",
        "A choice that a stop string ended goes on.",
        "        if self.finished:\n            return None\n",
        "",
    ),
    stream.fault(
        "share of the cache of the last choice",
        "With n choices usage says that the whole prompt was cached.",
        "if sequence_id == self._first:",
        "if sequence_id is not None:",
    ),
    stream.fault(
        "tokens of the first choice only",
        "Usage leaves out all but one of n choices.",
        "generated = sum(choice.num_tokens for choice in self.choices)",
        "generated = self.choices[0].num_tokens",
    ),
    request.fault(
        "min_tokens one too few",
        "A sequence may end with one token less than asked.",
        "output_len > self.min_tokens",
        "output_len >= self.min_tokens",
    ),
    request.fault(
        "max_tokens one too many",
        "A sequence ends one token late.",
        "if output_len >= self.max_tokens",
        "if output_len > self.max_tokens",
    ),
    settled.fault(
        "boundary inside a word",
        "Tokens that the next words may change are told as a shared prefix.",
        "bisect_right(self.ends, place - MARGIN)",
        "bisect_right(self.ends, place)",
    ),
    settled.fault(
        "boundary one token too far",
        "The token across the boundary is told as part of it.",
        "            counts.append(count)\n",
        "            counts.append(count + 1)\n",
    ),
    marks.fault(
        "client writes special tokens",
        "Text of a client that spells a special token becomes one.",
        "return bool(self._special.search(value)) or self._open(value)",
        "return False",
    ),
    marks.fault(
        "special token of two strings",
        "Two texts of a client that meet in the template make a special token.",
        "return marked + mark if self._open(text) else marked",
        "return marked",
    ),
)
