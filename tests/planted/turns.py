"""Faults of the memory of answers: whose a text is, what stands in front of it, where ids join."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

TEXT = "tests/worker/text"
TURNS, SEAM, PLAIN = (f"{TEXT}/test_{one}.py" for one in ("turns", "seam", "plain"))
SERVICE = "tests/worker/test_turns.py"

turns = Room("worker/text/turns.py", (TURNS, SEAM))
seam = Room("worker/text/seam.py", (SEAM, PLAIN, SERVICE))
agreement = Room("worker/text/agreement.py", (TURNS, f"{TEXT}/test_boundary_positions.py", SEAM))

FAULTS: tuple[Fault, ...] = (
    turns.fault(
        "answer looked for in no namespace",
        "What one tenant was answered turns up in another's prompt.",
        "Place(self._namespace, behind)",
        'Place(b"", behind)',
    ),
    turns.fault(
        "answer remembered without what stands in front",
        "The same words twice in a chat get the ids that they had the first time.",
        "        key = (behind, text)\n        if",
        "        key = (None, text)\n        if",
    ),
    turns.fault(
        "second look finds something else",
        "An answer that leaves the memory meanwhile moves the boundaries of a prompt that has it.",
        "        if key not in self._found:\n",
        "        if self._found is not None:\n",
    ),
    turns.fault(
        "places kept for ever",
        "Memory grows with every prompt that was ever answered.",
        "        if not texts:\n            del self._texts[place]\n",
        "",
    ),
    turns.fault(
        "ids weigh nothing",
        "The memory takes more than the operator gave it.",
        "sys.getsizeof(self.text) + len(self.ids) * self.ids.itemsize",
        "sys.getsizeof(self.text)",
    ),
    turns.fault(
        "characters counted as bytes",
        "Answers in other scripts take several times what they are counted for.",
        "sys.getsizeof(self.text)",
        "len(self.text)",
    ),
    seam.fault(
        "answer ends where its text was cut",
        "Ids of text that the client never got are taken for those of what it sends back.",
        "if not text or self._bytes(taken) != wanted:",
        "if not text:",
    ),
    seam.fault(
        "seam in the last words of an answer",
        "Words that could go together with what follows keep the ids that they had without it.",
        "text, last = said.text, words.settled(len(said.text))",
        "text, last = said.text, words.settled(len(said.text) + 32)",
    ),
    seam.fault(
        "seam's bytes counted as characters",
        "Behind a letter of two bytes an answer's ids are cut at another place than the text's.",
        "num_said = said_ends.get(len(head))",
        "num_said = said_ends.get(end)",
    ),
    seam.fault(
        "BOS counted as a token of the answer",
        "Where a text has BOS in front, ids are cut one too early.",
        "start=num_lead + 1)",
        "start=1)",
    ),
    agreement.fault(
        "halves compared by their last member",
        "Two texts that differ and agree again count as alike up to there.",
        "first[low:middle] == second[low:middle]",
        "first[middle - 1] == second[middle - 1]",
    ),
)
