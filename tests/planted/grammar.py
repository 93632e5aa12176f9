"""Faults of constrained decoding: what escapes, what is forced, who waits, what is left behind."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

CONSTRAINED = "tests/worker/test_constrained.py"
SERVICE = "tests/worker/test_constrained_service.py"
SAMPLER = "tests/worker/test_sampler_masks.py"
LANGUAGES, MASKS, COMPILER = (
    f"tests/worker/grammar/test_{one}.py" for one in ("languages", "masks", "compiler")
)

compiled = Room("worker/grammar/compiled.py", (CONSTRAINED, LANGUAGES))
compiler = Room("worker/grammar/compiler.py", (COMPILER,))
masks = Room("worker/grammar/masks.py", (MASKS, SERVICE))
matcher = Room("worker/grammar/matcher.py", (CONSTRAINED, COMPILER))
source = Room("worker/grammar/source.py", (LANGUAGES,))
vocabulary = Room("worker/grammar/vocabulary.py", (COMPILER, CONSTRAINED))
guidance = Room("worker/guidance.py", (CONSTRAINED, MASKS))
sequence = Room("worker/sequence.py", (CONSTRAINED,))
scheduler = Room("worker/scheduler.py", (MASKS, CONSTRAINED))
allotment = Room("worker/allotment.py", (CONSTRAINED,))
engine = Room("worker/engine.py", (MASKS, SERVICE))
sampler = Room("worker/sampler.py", (SAMPLER,))
stream = Room("worker/stream.py", (SERVICE,))

FAULTS: tuple[Fault, ...] = (
    compiled.fault(
        "special tokens escape the grammar",
        "A grammar that names a special id lets it into the answer.",
        '        shown = int.from_bytes(mask, "little") & ~self.hidden\n',
        '        shown = int.from_bytes(mask, "little")\n',
    ),
    compiled.fault(
        "end open before the grammar ends",
        "A language that is empty is found out in the middle of a step.",
        "    if not opens and (base.is_error() or not base.is_accepting()):\n",
        "    if not opens and base.is_error() and base.is_accepting():\n",
    ),
    compiler.fault(
        "two lists of choices for one",
        "A request gets another one's grammar.",
        '        digest.update(len(data).to_bytes(8, "little"))\n',
        "",
    ),
    compiler.fault(
        "grammars kept for ever",
        "Memory grows with every schema that was ever sent.",
        "                while len(self._known) > self._max_grammars:\n",
        "                while len(self._known) > 100 * self._max_grammars:\n",
    ),
    masks.fault(
        "mask of a sequence that has left",
        "What comes for an aborted sequence is taken for a live one's.",
        "            if number in self._asked:\n                self._asked",
        "            if number:\n                self._asked",
    ),
    matcher.fault(
        "forced text told and not taken",
        "What is forced is appended, and the grammar still stands in front of it.",
        "            forced.append(token)\n            self._look(state)\n",
        "            forced.append(token)\n            self._run.clear()\n",
    ),
    matcher.fault(
        "long forced text cut anywhere",
        "The end of a part and the text behind it get tokens that the whole does not have.",
        "PART_BYTES - _MARGIN_BYTES)",
        "PART_BYTES)",
    ),
    source.fault(
        "white space without end",
        "A weak model writes spaces between two tokens of JSON until max_tokens.",
        'WHITE_SPACE = r"( |\\n {0,20})"',
        'WHITE_SPACE = r"[ \\n]+"',
    ),
    source.fault(
        "schema overrules the worker",
        "A schema's own options make the worker ignore keywords that it doesn't support.",
        "overrides=options)",
        "defaults=options)",
    ),
    vocabulary.fault(
        "space in front of inner text",
        "Forced text of a sentencepiece vocabulary has a space that the grammar doesn't.",
        "            if self._spells(ids, wanted):\n",
        "            if ids:\n",
    ),
    guidance.fault(
        "continuation begins its grammar anew",
        "A choice that another worker began must conform to the whole language once more.",
        "unpack_tokens(spec.output))",
        "[])",
    ),
    guidance.fault(
        "tokens forced behind an end",
        "max_tokens and stop tokens are passed over where text is forced.",
        "            if finish is not None:\n"
        "                return Followed(tuple(tokens), finish)\n",
        "",
    ),
    guidance.fault(
        "stale mask",
        "A sequence whose mask is not ready samples under the last one's.",
        "        sequence.outlook = None\n",
        "",
    ),
    sequence.fault(
        "min_tokens empties the mask",
        "Where the grammar has only stop tokens left, anything is sampled.",
        "return others if is_open(others) else outlook.mask",
        "return others",
    ),
    sequence.fault(
        "end never open",
        "A language that may end anywhere goes on until max_tokens.",
        "        if outlook.may_end and self.spec.grammar is not None:\n",
        "        if False and self.spec.grammar is not None:\n",
    ),
    scheduler.fault(
        "forced tokens without pages",
        "Tokens that a grammar forced are written beyond a sequence's pages.",
        "            if sequence.remaining > 1:\n                self._grow(sequence)\n",
        "            if sequence.remaining > 1:\n                pass\n",
    ),
    scheduler.fault(
        "matcher of a failed sequence lives on",
        "Nobody tells the threads that a sequence has left.",
        "        self.guidance.forget(sequence)\n",
        "",
    ),
    engine.fault(
        "nobody wakes the engine",
        "Where everyone waits for masks the engine sleeps for ever.",
        "        scheduler.guidance.wake(self._awake)\n",
        "",
    ),
    engine.fault(
        "forced tokens told twice",
        "What was forced between two steps comes with every report after it.",
        "untold, self._untold = self._untold, []",
        "untold = list(self._untold)",
    ),
    sampler.fault(
        "mask behind the truncation",
        "The best tokens of all are kept, and then none of them may be drawn.",
        "    allowed = _open_ids(row.mask, len(scores))\n"
        "    return int(allowed[_pick(scores[allowed], row)])\n",
        "    return _pick(scores, row)\n",
    ),
    stream.fault(
        "last token of a grammar hidden",
        "The token with which a grammar ends is taken for an end-of-sequence token.",
        "            ends = index == last and not progress.closed\n",
        "            ends = index == last\n",
    ),
)
