"""Faults of programs: branches, choices, healing, going on elsewhere, sessions, what is paid."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

RUN, RANDOM, BOUNDS = (
    f"tests/worker/programs/test_{one}.py" for one in ("run", "random", "bounds")
)
CHECK = "tests/gateway/http/test_programs.py"
PROMPTS = "tests/gateway/http/test_program_prompts.py"
USER, LOOKS = "tests/pando/test_programs.py", "tests/pando/test_sessions.py"

tape = Room("worker/programs/tape.py", (RANDOM,))
scoring = Room("worker/programs/scoring.py", (RANDOM,))
run = Room("worker/programs/run.py", (RUN, RANDOM))
asked = Room("worker/programs/run.py", (RANDOM,))
desk = Room("worker/programs/desk.py", (BOUNDS,))
house = Room("worker/programs/house.py", (RUN,))
sessions = Room("worker/programs/sessions.py", (RUN,))
check = Room("gateway/http/programs/check.py", (CHECK,))
answer = Room("gateway/http/programs/answer.py", (CHECK, PROMPTS))
prompts = Room("gateway/http/programs/prompts.py", (PROMPTS,))
given = Room("gateway/given_out.py", (CHECK,))
state = Room("pando/programs/state.py", (USER, LOOKS))
session = Room("pando/programs/session.py", (LOOKS,))

FAULTS: tuple[Fault, ...] = (
    tape.fault(
        "fork goes on in its parent's ids",
        "What one branch appends stands in front of the others.",
        "            ids=list(self.ids),\n            messages",
        "            messages",
    ),
    tape.fault(
        "fork goes on in its parent's message",
        "What a branch says is in the message of all others.",
        "        current = None if self.current is None else replace(self.current)\n",
        "        current = self.current\n",
    ),
    tape.fault(
        "healed text told twice",
        "The text of the token that was taken back stands in the branch's ids twice.",
        "        return Start(ids[:-1], text)\n",
        "        return Start(ids, text)\n",
    ),
    tape.fault(
        "stop string kept in the ids",
        "The next step goes on behind the stop string that the value is without.",
        "            if not wanted.startswith(spelled):\n                break\n",
        "",
    ),
    tape.fault(
        "text behind the last generation lost",
        "A message's end without a generation in it is not in the next prompt.",
        "            self.ids = self._with(self.pending)\n            self.anchor",
        "            self.anchor",
    ),
    scoring.fault(
        "choice not measured by its length",
        "The shortest choice is taken.",
        "    means = [fmean(values) for values in logprobs]\n    return means.index",
        "    means = [sum(values) for values in logprobs]\n    return means.index",
    ),
    scoring.fault(
        "choices scored behind the text's own end",
        "The first token of a choice that merges with the text is left out.",
        "    return min(shared, min(map(len, choices)) - 1)\n",
        "    return min(len(text), min(map(len, choices)) - 1)\n",
    ),
    scoring.fault(
        "first token of each choice left out",
        "Choices are told apart by their ends alone.",
        "    return min(shared, min(map(len, choices)) - 1)\n",
        "    return min(shared + 1, min(map(len, choices)) - 1)\n",
    ),
    scoring.fault(
        "greedy selection by the whole choice",
        "A likely first token doesn't decide.",
        "    left = list(range(len(tokens)))\n",
        "    left = [means.index(max(means))]\n",
    ),
    asked.fault(
        "likelihood behind nothing not taken off",
        "The commonest choice is taken, whatever is in front.",
        "        return by_gain(logprobs, alone)\n",
        "        return by_mean(logprobs)\n",
    ),
    asked.fault(
        "chosen text not appended",
        "The branch goes on without what was selected.",
        "        tape.append(texts[best])\n",
        "",
    ),
    run.fault(
        "finished node run again elsewhere",
        "A worker that takes a program up computes and tells what the client has.",
        "        if given is not None and given.finish is not None:\n            self._generated",
        "        if given is None and tally is None:\n            self._generated",
    ),
    run.fault(
        "finished choice scored again elsewhere",
        "A select that the client has the value of is told once more.",
        "        if given is not None and given.finish is not None:\n            self._count",
        "        if given is None and tally is None:\n            self._count",
    ),
    run.fault(
        "branch goes on with its last value",
        "With n above 1 the text behind is that of another value than the first.",
        "        tape.said(start, *values[0])\n",
        "        tape.said(start, *values[-1])\n",
    ),
    run.fault(
        "same noise at every place",
        "Two generations with one seed draw the same.",
        'f"{seed}/{self._places[id(node)]}"',
        'f"{seed}/"',
    ),
    run.fault(
        "selects of a program not counted",
        "Scored prompts cost their tenant nothing.",
        "        self._prompt_tokens += prompt_tokens\n",
        "        self._prompt_tokens = max(self._prompt_tokens, prompt_tokens)\n",
    ),
    run.fault(
        "branches after one another",
        "A fork's branches wait for one another.",
        "                    self._group.create_task(self._branch(branch, tape.copy()))\n",
        "                    await self._branch(branch, tape.copy())\n",
    ),
    desk.fault(
        "one sequence more than may enter",
        "A program has more of the engine than its share.",
        "len(self._entered) < MAX_AT_ONCE",
        "len(self._entered) <= MAX_AT_ONCE",
    ),
    desk.fault(
        "ended sequences hold their place",
        "A program with more sequences than may enter never ends.",
        "            self._entered.discard(sequence_id)\n            self._fill()\n",
        "            self._entered.discard(sequence_id)\n",
    ),
    house.fault(
        "failed program ends its session",
        "What was kept before a request that failed is gone with it.",
        "            self.sessions.keep(session.id, namespace, kept)\n            raise\n",
        "            raise\n",
    ),
    house.fault(
        "failed program writes into its session",
        "What goes on behind a request that failed stands behind half of it.",
        "            yield kept.state.copy()\n",
        "            yield kept.state\n",
    ),
    house.fault(
        "session's pages kept behind its end",
        "A session that was ended holds its pages as long as before.",
        "packed(run.state.tape.ids), float(session.ttl_s))",
        "packed(run.state.tape.ids), 60.0)",
    ),
    sessions.fault(
        "session of another tenant",
        "Whoever knows the id goes on from another tenant's text.",
        "if kept is None or kept.namespace != namespace:",
        "if kept is None:",
    ),
    check.fault(
        "one token more than a program may generate",
        "The limit is passed by one.",
        "        if self.tokens > self.limits.tokens:\n",
        "        if self.tokens > self.limits.tokens + 1:\n",
    ),
    check.fault(
        "values of an n counted once",
        "A program generates n times what it may.",
        "        self._spend(node.max_tokens * node.n)\n",
        "        self._spend(node.max_tokens)\n",
    ),
    check.fault(
        "branches beyond the limit",
        "A fork with one branch more than may be is taken.",
        "        if self.num_branches > self.limits.branches:\n",
        "        if self.num_branches > self.limits.branches + 1:\n",
    ),
    answer.fault(
        "another value's text told",
        "All values of an n have the text of all of them.",
        "self._nodes.setdefault((node.name, node.index), _Node())",
        "self._nodes.setdefault((node.name, 0), _Node())",
    ),
    prompts.fault(
        "choices reserved once for all",
        "A select of many choices passes a tenant's limit.",
        "asked = sum((front + choice).most + _LEAD_TOKENS for choice in choices)",
        "asked = max((front + choice).most + _LEAD_TOKENS for choice in choices)",
    ),
    prompts.fault(
        "select's text not reserved",
        "What stands in front of each choice is charged and was never reserved.",
        "asked = sum((front + choice).most + _LEAD_TOKENS for choice in choices)",
        "asked = sum(choice.most + _LEAD_TOKENS for choice in choices)",
    ),
    given.fault(
        "node's first piece lost on the way to the next worker",
        "A node that was begun in pieces goes on behind its last one alone.",
        "        self.token_ids += node.token_ids\n",
        "        self.token_ids = bytearray(node.token_ids)\n",
    ),
    state.fault(
        "value read of the wrong branch",
        "A fork reads what another one set.",
        "        state._names = dict(self._names)\n",
        "        state._names = self._names\n",
    ),
    session.fault(
        "failed run leaves its session",
        "The worker holds its pages until it expires.",
        "            self.close()  # who knows what is there by now\n",
        "            self._id = None\n",
    ),
    session.fault(
        "session kept behind the last request",
        "The worker holds its pages until it expires.",
        '"ttl_s": 0 if is_last else TTL_S}',
        '"ttl_s": TTL_S}',
    ),
)
