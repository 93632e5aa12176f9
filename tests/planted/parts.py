"""Faults of an answer's parts: what is a call, what is reasoning, and what goes on elsewhere."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

PARTS = "tests/worker/parts"
SPLITTER, LANGUAGE, MANNER = (
    f"{PARTS}/test_{one}.py" for one in ("splitter", "language", "manner")
)
CHOICE = "tests/worker/test_choice.py"

splitter = Room("worker/parts/splitter.py", (SPLITTER, CHOICE))
language = Room("worker/parts/language.py", (LANGUAGE,))
manner = Room("worker/parts/manner.py", (MANNER,))
telling = Room("worker/parts/telling.py", (MANNER,))
choice = Room("worker/choice.py", (CHOICE,))

FAULTS: tuple[Fault, ...] = (
    splitter.fault(
        "a mark that is cut in two is text",
        "Half of `<tool_call>` is given out before the other half comes.",
        "        sure = rest[: len(rest) - _begun(rest, calls.trigger)].rstrip()\n",
        "        sure = rest.rstrip()\n",
    ),
    splitter.fault(
        "brackets in strings end the arguments",
        "Arguments whose text holds a closing bracket are cut there.",
        '            elif not self._in_string and character in "}]":\n',
        '            elif character in "}]":\n',
    ),
    splitter.fault(
        "an escaped quote ends a string",
        "Arguments with quotes in their text are cut or never end.",
        "                self._is_escaped = self._in_string\n",
        "                self._is_escaped = False\n",
    ),
    splitter.fault(
        "the second call takes the first one's number",
        "Parallel calls are joined to one.",
        "                self._index += 1\n",
        "                self._index = 0\n",
    ),
    splitter.fault(
        "calls are looked for in thoughts",
        "A model that thinks about a call makes it.",
        "            self._state = _State.START if thinking is Thinking.OPEN else _State.THOUGHT\n",
        "            self._state = _State.TEXT\n",
    ),
    splitter.fault(
        "white space behind a thought is text",
        "Every answer of a thinking model begins with two new lines.",
        '        """White space in front of the answer."""\n        rest = rest.lstrip()\n',
        '        """White space in front of the answer."""\n',
    ),
    splitter.fault(
        "held text is lost at the end",
        "An answer that ends in what may have begun a mark lacks its last characters.",
        "        if self._state in (_State.START, _State.TEXT):\n",
        "        if self._state is _State.START:\n",
    ),
    language.fault(
        "any name may be called",
        "A call of one tool that the client did not name gets through.",
        '        return [one for one in self.functions if not name or one["name"] == name]\n',
        "        return list(self.functions)\n",
    ),
    language.fault(
        "a single call is followed by others",
        "parallel_tool_calls false is not kept.",
        "        if not tools.choice.single:\n",
        "        if True:\n",
    ),
    language.fault(
        "a schema is kept leniently though it is strict",
        "Keywords that nobody keeps are passed over in silence.",
        '        "lenient": not function.get("strict"),\n',
        '        "lenient": True,\n',
    ),
    language.fault(
        "a required call may be text",
        "tool_choice required answers with words.",
        "    elif tools is not None and tools.choice.mode is ToolMode.AUTO:\n",
        "    elif tools is not None:\n",
    ),
    language.fault(
        "a constraint holds within a thought",
        "A thinking model must think in JSON.",
        'Thinking.OPEN: "thought? "',
        'Thinking.OPEN: ""',
    ),
    manner.fault(
        "tools that may not be called are constrained",
        "tool_choice none calls.",
        "        may_call = bool(tools) and chat.tool_choice.mode is not ToolMode.NONE\n",
        "        may_call = bool(tools)\n",
    ),
    manner.fault(
        "a thought that the prompt has ended is awaited",
        "With thinking switched off, the answer is taken for reasoning.",
        "        return Thinking.NONE if tail.endswith(THOUGHT) else Thinking.OPEN\n",
        "        return Thinking.OPEN\n",
    ),
    telling.fault(
        "results of tools are dropped",
        "A model that was told of tools in words never sees what they gave.",
        'f"<tool_response>\\n{text}\\n</tool_response>"',
        '"<tool_response>\\n\\n</tool_response>"',
    ),
    choice.fault(
        "a replay gives its parts again",
        "A continued call repeats the beginning of its arguments.",
        "            self.splitter.push(text[: resumed.text_chars])\n",
        "            pass\n",
    ),
)
