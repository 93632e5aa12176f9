"""Faults of what computes a step: the engine's loop, the runner, the sampler."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

engine = Room("worker/engine.py", ("tests/worker/test_engine.py",))
runner = Room("worker/runner.py", ("tests/worker/test_runner.py",))
sampler = Room("worker/sampler.py", ("tests/worker/test_sampler.py",))
short = Room("worker/errors.py", ("tests/worker/test_exhaustion.py",))
tokenizer = Room("worker/text/tokenizer.py", ("tests/worker/test_exhaustion.py",))

FAULTS: tuple[Fault, ...] = (
    engine.fault(
        "abort waits for the end of the step",
        "A hang-up frees its pages only when a step that nobody wants is computed.",
        "        if self._scheduler.step_is_void:\n            raise StepAbandoned\n",
        "",
    ),
    engine.fault(
        "stop waits for the end of the step",
        "A worker that is to leave computes what nobody will get.",
        "        if self._stopping:\n            raise StepAbandoned\n",
        "",
    ),
    engine.fault(
        "step given up is not failed",
        "What a step that was given up committed stays in the cache.",
        "            self._fail_step(error, first_cached, started)\n",
        "            if not isinstance(error, StepAbandoned):\n"
        "                self._fail_step(error, first_cached, started)\n",
    ),
    engine.fault(
        "failed sequences not told",
        "A request whose step failed never ends.",
        "replace(told, failed=failed)",
        "told",
    ),
    short.fault(
        "want of memory ends requests",
        "A worker without memory fails what another one could go on with.",
        "isinstance(error, MemoryError) or any",
        "any",
    ),
    short.fault(
        "panic escapes",
        "A panic of a library in Rust breaks the link, or leaves a program without an end.",
        ' and type(error).__name__ != "PanicException"',
        "",
    ),
    tokenizer.fault(
        "tokenizer's threads begin with the first request",
        "Where memory is short then, every text of the worker fails from then on.",
        '        made.encode("")\n',
        "",
    ),
    engine.fault(
        "command doesn't wake the loop",
        "A request to an idle worker waits for the next one.",
        "            self._commands.extend(commands)\n            self._wake.notify()",
        "            self._commands.extend(commands)",
    ),
    engine.fault(
        "share of the cache told with every step",
        "Usage says that each token came from the cache.",
        "                self._awaiting_admission.discard(row.sequence_id)\n",
        "",
    ),
    engine.fault(
        "dead engine looks alive",
        "A defect ends the loop, and requests go on coming.",
        "            self.broken = True\n",
        "",
    ),
    engine.fault(
        "death not told",
        "A defect ends the loop, and the process waits for ever.",
        "            self._on_death()\n",
        "",
    ),
    engine.fault(
        "load before the abort",
        "What is reported of pages is what they were before.",
        "        self.load = report.load\n",
        "",
    ),
    engine.fault(
        "events of a failed step wait",
        "What a failed step took out of the cache is believed to be there until the next one.",
        "first_cached=first_cached, events=self._take_events(), began=began",
        "first_cached=first_cached, began=began",
    ),
    runner.fault(
        "poison after the copies",
        "A page that was freed and is copied to is emptied again.",
        "        if plan.poison:\n"
        '            self._backend.fill_pages(plan.poison, float("nan"))\n'
        "        if plan.copies:\n"
        "            sources, targets = zip(*plan.copies, strict=True)\n"
        "            self._backend.copy_pages(list(sources), list(targets))\n",
        "        if plan.copies:\n"
        "            sources, targets = zip(*plan.copies, strict=True)\n"
        "            self._backend.copy_pages(list(sources), list(targets))\n"
        "        if plan.poison:\n"
        '            self._backend.fill_pages(plan.poison, float("nan"))\n',
    ),
    runner.fault(
        "copies the wrong way round",
        "The cached page is overwritten by the new, empty one.",
        "self._backend.copy_pages(list(sources), list(targets))",
        "self._backend.copy_pages(list(targets), list(sources))",
    ),
    runner.fault(
        "logits of another row",
        "A sequence samples from its neighbour's last position.",
        "last = ends[wanted].astype(np.int64) - 1",
        "last = np.roll(ends[wanted], 1).astype(np.int64) - 1",
    ),
    runner.fault(
        "positions count from the chunk",
        "A chunk that goes on behind others is placed at the beginning.",
        "    positions += np.repeat(starts - before, lengths)\n",
        "    positions += np.repeat(-before, lengths)\n",
    ),
    runner.fault(
        "slots by the first sequence's table",
        "K/V of the second sequence lands in the first one's pages.",
        "pages = tables[owner, positions // page_size]",
        "pages = tables[owner * 0, positions // page_size]",
    ),
    runner.fault(
        "context without the new tokens",
        "A token does not see itself.",
        "context = (starts + lengths).astype(np.int32)",
        "context = np.maximum(starts, 1).astype(np.int32)",
    ),
    runner.fault(
        "no checkpoint between layers",
        "A hang-up takes effect only at a step's end.",
        "        self.checkpoint()\n",
        "",
    ),
    runner.fault(
        "token given to another sequence",
        "Where a prefill that isn't done stands in front, tokens go to the wrong one.",
        "Sampled(rows[index].sequence_id, token, logprobs)",
        "Sampled(rows[wanted.index(index)].sequence_id, token, logprobs)",
    ),
    sampler.fault(
        "noise depends on the place in the batch",
        "The same seed gives another answer among other requests.",
        "            token = _draw(logits[index].double().cpu().numpy(), row)\n",
        "            from dataclasses import replace\n\n"
        "            row = replace(row, position=row.position + index)\n"
        "            token = _draw(logits[index].double().cpu().numpy(), row)\n",
    ),
    sampler.fault(
        "noise without the choice",
        "All choices of a request are the same.",
        "seed & (2**64 - 1), choice, position",
        "seed & (2**64 - 1), 0, position",
    ),
    sampler.fault(
        "noise without the position",
        "Every token of a stream is drawn with the same number.",
        "seed & (2**64 - 1), choice, position",
        "seed & (2**64 - 1), choice, 0",
    ),
    sampler.fault(
        "bias writes into the logits",
        "Logprobs, and whoever shares the row, see the bias.",
        "_draw(logits[index].double().cpu().numpy(), row)",
        "_draw(logits[index].cpu().numpy(), row)",
    ),
    sampler.fault(
        "presence penalty looks at the prompt",
        "Words of the question are avoided in the answer.",
        "np.unique(history[row.prompt_len :], return_counts=True)",
        "np.unique(history, return_counts=True)",
    ),
    sampler.fault(
        "frequency penalty counts once",
        "A word that came often is no less likely than one that came once.",
        "sampling.frequency_penalty * counts",
        "sampling.frequency_penalty * (counts > 0)",
    ),
    sampler.fault(
        "repetition penalty prefers what is unlikely",
        "A negative logit that is divided becomes a better one.",
        "np.where(scores[seen] > 0, scores[seen] / factor, scores[seen] * factor)",
        "scores[seen] / factor",
    ),
    sampler.fault(
        "nucleus without its last token",
        "The token that reaches top_p is left out.",
        "np.count_nonzero(mass - weights[order] < sampling.top_p * total)",
        "np.count_nonzero(mass < sampling.top_p * total)",
    ),
    sampler.fault(
        "nucleus of what top_k has dropped",
        "top_p counts the mass of tokens that can't be drawn any more.",
        "total = mass[-1] if len(order) == k < len(scores) else weights.sum()",
        "total = weights.sum()",
    ),
    sampler.fault(
        "nucleus cut where sorting stops",
        "A flat distribution loses what lies behind the first sorted ones.",
        "if keep < len(order) or len(order) == k:",
        "if keep <= len(order):",
    ),
    sampler.fault(
        "min_p ignored beside top_p",
        "Of two limits only one holds.",
        "    order = order[weights[order] >= sampling.min_p]\n",
        "",
    ),
    sampler.fault(
        "bans ignored when greedy",
        "An end-of-sequence token is taken before min_tokens.",
        "        and not row.banned\n",
        "",
    ),
    sampler.fault(
        "logprobs at the temperature",
        "What is reported are not the model's own.",
        "    row = logits.double()\n    logprobs",
        "    row = logits.double() / 2\n    logprobs",
    ),
)
