"""Faults of prompt scores: what is kept beside a page, whose it is, how long it may be believed."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

TESTS = (
    "tests/worker/test_allotment.py",
    "tests/worker/cache/test_scores.py",
    "tests/worker/test_prompt_scores.py",
)

scores = Room("worker/cache/scores.py", TESTS)
allotment = Room("worker/allotment.py", TESTS)
sequence = Room("worker/sequence.py", TESTS)
scheduler = Room("worker/scheduler.py", TESTS)
draft = Room("worker/draft.py", TESTS)

FAULTS: tuple[Fault, ...] = (
    scores.fault(
        "score believed whatever token follows",
        "A prompt that goes on otherwise is given the logprob of another's next token.",
        "entry.following[slot] != tokens[position]",
        "entry.following[slot] == _UNKNOWN",
    ),
    scores.fault(
        "page without scores passed over",
        "What stands behind a gap is told as the scores of the tokens in it.",
        "            if entry is None:\n                return found\n",
        "            if entry is None:\n                continue\n",
    ),
    scores.fault(
        "only the first new page's scores forgotten",
        "Of several pages handed out together all but one keep what they had.",
        "            for page in pages:\n                self._pages.pop(page, None)",
        "            for page in pages[:1]:\n                self._pages.pop(page, None)",
    ),
    scores.fault(
        "scores kept in half the precision",
        "A prompt's scores differ in their last bits once they come from the cache.",
        'array("d", unknown)',
        'array("f", unknown)',
    ),
    scores.fault(
        "best token of another score stays",
        "A token that is the most likely one is told beside another that is said to be likelier.",
        "        entry.best.pop(slot, None)\n",
        "",
    ),
    allotment.fault(
        "unscored tokens taken from behind the match",
        "Where scores begin late, tokens count as cached that stand in no page.",
        "self._scores.known(pages, tokens, unscored)[:limit]",
        "self._scores.known(pages, tokens, unscored)",
    ),
    allotment.fault(
        "new pages keep another's scores",
        "A page that is handed out again still has the scores of what it held before.",
        "        self._scores.forget(fresh)\n        held.pages += fresh\n        sequence.held",
        "        held.pages += fresh\n        sequence.held",
    ),
    allotment.fault(
        "page for generated tokens keeps another's scores",
        "Only the pages of prompts are cleaned when they are handed out.",
        "            self._scores.forget(fresh)\n"
        "            held.pages += fresh\n"
        "        return True",
        "            held.pages += fresh\n        return True",
    ),
    allotment.fault(
        "positions without scores taken from the cache",
        "A prompt whose pages were computed without scores never gets them.",
        "        return Match(pages[:whole], pages[whole] if rest else None, rest)",
        "        return match",
    ),
    allotment.fault(
        "scores of a computed chunk added, not put in place",
        "What is computed again, since its page couldn't be copied, is told twice.",
        "        sequence.scores[start:] = scores\n",
        "        sequence.scores += scores\n",
    ),
    allotment.fault(
        "scores for a sequence that has left",
        "An abort during the step that scores its prompt ends the engine.",
        "        if held is None:\n            return\n        following",
        "        assert held is not None\n        following",
    ),
    sequence.fault(
        "step runs past where scores begin",
        "The first tokens that are to be scored are computed without a score.",
        "if self.wants_scores and unscored > 0:",
        "if self.wants_scores and unscored > self.remaining:",
    ),
    scheduler.fault(
        "scores put beside the duplicate",
        "They go with a page that is given back at once, and each such prompt is computed again.",
        "            self._pages.settle(sequence)\n"
        "            if number in result.scored:\n"
        "                self._pages.score(sequence, start, result.scored[number])\n",
        "            if number in result.scored:\n"
        "                self._pages.score(sequence, start, result.scored[number])\n"
        "            self._pages.settle(sequence)\n",
    ),
    draft.fault(
        "scored tokens without a bound",
        "A step has a row of logits for every token of every prompt that wants scores.",
        "            self.scorable -= count\n",
        "            pass\n",
    ),
)
