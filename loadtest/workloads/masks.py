"""What constrained decoding costs: masks over a real vocabulary; hostile grammars beside others.

masks: random walks through schemas, regexes and choices, at every token one that the grammar
allows. Timed, in the thread's own CPU time: taking the token, finding what is forced, the mask of
the next one. What the walks end with is checked by others: jsonschema, Python's re, equality.

hostile: plain sequences of a real model, beside more of their kind, and beside as many whose
grammars are the most work that we know of: how the others' inter-token times differ.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean
from typing import Any

import jsonschema

from loadtest.report import Report
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import CacheScope
from worker.config import WorkerConfig
from worker.engine import Engine, StepReport, StepRunner
from worker.grammar.compiled import Grammar
from worker.grammar.compiler import Compiler
from worker.grammar.masks import THREADS, Masks
from worker.grammar.matcher import Matcher
from worker.model.files import default_cache_folder, resolve
from worker.request import Sampling, Stopping
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import SequenceSpec, pack_tokens
from worker.submission import Constraint, Language
from worker.text.tokenizer import Tokenizer

NAME = "masks"
COLUMNS = ("language", "compile ms", "tokens", "mean us", "p50 us", "p99 us", "ended", "invalid")

_WORD = {"type": "string", "maxLength": 24}
_POINT = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": "integer", "minimum": -99}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
SCHEMAS: Mapping[str, dict[str, Any]] = {
    "person": {
        "type": "object",
        "properties": {
            "name": _WORD,
            "email": {"type": "string", "pattern": "^[a-z]{1,12}@[a-z]{1,12}\\.com$"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "role": {"enum": ["admin", "user", "guest"]},
            "born": {"type": "string", "format": "date"},
        },
        "required": ["name", "email", "age", "role", "born"],
        "additionalProperties": False,
    },
    "order": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^[A-F0-9]{8}$"},
            "lines": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"item": _WORD, "count": {"type": "integer", "minimum": 1}},
                    "required": ["item", "count"],
                    "additionalProperties": False,
                },
                "minItems": 1,
                "maxItems": 3,
            },
            "paid": {"type": "boolean"},
        },
        "required": ["id", "lines", "paid"],
        "additionalProperties": False,
    },
    "shapes": {
        "$defs": {"point": _POINT},
        "type": "array",
        "items": {"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}, _WORD]},
        "maxItems": 4,
    },
    "wide": {
        "type": "object",
        "properties": {f"field_{n}": {"type": "integer", "maximum": 9} for n in range(60)},
        "additionalProperties": False,
    },
}
REGEXES: Mapping[str, str] = {
    "date": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}",
    "sentence": r"[A-Z][a-z]{1,12}( [a-z]{1,12}){2,8}\.",
    "number": r"-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?",
    "japanese": r"[ぁ-ん]{3,12}。",
}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "colours": ("red", "green", "blue", "light green", "light blue"),
    "countries": tuple(f"country number {n} of many" for n in range(500)),
}
HOSTILE = (
    Constraint(Language.GRAMMAR, 'start: s\ns: s s | "a" | "aa" | "aaa"'),
    Constraint(Language.REGEX, r"(.*a.{20}b.*c.{20}|.*a.{200}|[ab]*a[ab]{18})"),
)
VICTIMS = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """walks through each language, of max_tokens at most. rounds of victim_tokens beside others."""

    walks: int = 40
    max_tokens: int = 300
    victim_tokens: int = 60
    rounds: int = 3
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    """Of one language. seconds: for each token. invalid: ended walks that others find wrong."""

    name: str
    compile_s: float
    seconds: list[float] = field(default_factory=list)
    ended: int = 0
    invalid: int = 0
    failed: int = 0


def languages() -> dict[str, tuple[Constraint, Callable[[str], bool]]]:
    """Every constraint, and how a text is checked by others."""
    found: dict[str, tuple[Constraint, Callable[[str], bool]]] = {}
    for name, value in SCHEMAS.items():
        source = Constraint(Language.JSON_SCHEMA, json.dumps(value))
        found[f"schema {name}"] = (source, _valid_under(value))
    for name, regex in REGEXES.items():
        found[f"regex {name}"] = (Constraint(Language.REGEX, regex), _matched_by(regex))
    for name, texts in CHOICES.items():
        source = Constraint(Language.CHOICES, choices=texts)
        found[f"choices {name}"] = (source, frozenset(texts).__contains__)
    return found


def _valid_under(schema: dict[str, Any]) -> Callable[[str], bool]:
    validator = jsonschema.Draft202012Validator(schema)

    def valid(text: str) -> bool:
        try:
            return bool(validator.is_valid(json.loads(text)))
        except ValueError:
            return False

    return valid


def _matched_by(regex: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(regex, text) is not None


def measure(model: str, shape: Shape) -> list[Outcome]:
    """Walks through every language on the model's vocabulary."""
    tokenizer = Tokenizer.load(resolve(model, default_cache_folder()))
    compiler = Compiler(tokenizer)
    compiler.compile(Constraint(Language.REGEX, "a"))  # builds the vocabulary
    rng = random.Random(shape.seed)
    outcomes = []
    for name, (constraint, valid) in languages().items():
        began = time.perf_counter()
        grammar = compiler.compile(constraint)
        outcome = Outcome(name, time.perf_counter() - began)
        for _ in range(shape.walks):
            text = _walk(grammar, tokenizer, shape.max_tokens, rng, outcome)
            if text is not None:
                outcome.ended += 1
                outcome.invalid += not valid(text)
        outcomes.append(outcome)
    return outcomes


def _walk(
    grammar: Grammar, tokenizer: Tokenizer, most: int, rng: random.Random, outcome: Outcome
) -> str | None:
    """Returns the text that one walk ended with; None where it was cut."""
    matcher = Matcher(grammar, appends=False)
    tokens: list[int] = []
    taken: list[int] = []
    while len(tokens) < most:
        began = time.thread_time()
        outlook = matcher.advance(taken)
        outcome.seconds.append(time.thread_time() - began)
        if outlook.failure is not None:
            outcome.failed += 1
            return None
        token = None if outlook.ended else _drawn(outlook.mask, outlook.may_end, rng)
        if token is None:
            return b"".join(map(tokenizer.token_bytes, tokens)).decode(errors="replace")
        tokens.append(token)
        taken = [token]
    return None


def _drawn(mask: bytes, may_end: bool, rng: random.Random) -> int | None:
    """One of the open ids, all alike: a weak model at temperature 1. None: the end."""
    bits = int.from_bytes(mask, "little")
    count = bits.bit_count()
    if may_end and rng.randrange(count + 1) == count:
        return None
    # Drawing by position, a byte at a time: there are fewer open bytes than bits.
    wanted = rng.randrange(count)
    for place, byte in enumerate(mask):
        inside = byte.bit_count()
        if wanted < inside:
            open_bits = [bit for bit in range(8) if byte >> bit & 1]
            return place * 8 + open_bits[wanted]
        wanted -= inside
    raise AssertionError("a mask has an open id")


def measure_hostile(model: str, shape: Shape) -> float:
    """The others' p99 inter-token time beside hostile grammars, over that beside their like."""
    # Only this needs torch.
    from worker.assembly import build_runner
    from worker.sizes import decide

    width = VICTIMS + len(HOSTILE)
    config = WorkerConfig(model=model, kv_memory="256MiB", max_running_sequences=width)
    folder = resolve(model, default_cache_folder())
    sizes = decide(config, folder)
    runner = build_runner(config, sizes, folder)
    compiler = Compiler(Tokenizer.load(folder))
    grammars: dict[bool, list[Grammar | None]] = {
        False: [None] * len(HOSTILE),
        True: [compiler.compile(one) for one in HOSTILE],
    }
    beside: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(shape.rounds):
        for hostile, found in beside.items():
            watch = _Watch(runner, sizes.pages.num_pages, grammars[hostile], shape)
            found.append(_p(watch.gaps(), 0.99))
    return min(beside[True]) / min(beside[False])


class _Watch:
    """Victims in an engine, and others beside them that begin again whenever they end."""

    def __init__(
        self, runner: StepRunner, num_pages: int, others: Sequence[Grammar | None], shape: Shape
    ) -> None:
        self._rng = random.Random(shape.seed)
        self._others = {VICTIMS + place: one for place, one in enumerate(others, start=1)}
        self._num_tokens = shape.victim_tokens
        self._next = VICTIMS + len(others)
        self._came: dict[int, list[float]] = {number: [] for number in range(1, VICTIMS + 1)}
        self._done = threading.Event()
        limits = SchedulerLimits(256, VICTIMS + len(others))
        scheduler = Scheduler(RadixCache(PagePool(num_pages, 16)), limits, masks=Masks(THREADS))
        self._engine = Engine(scheduler, runner, self._take)

    def gaps(self) -> list[float]:
        """Runs until every victim has its tokens; returns the times between them."""
        self._engine.start(self._done.set)
        victims = [self._spec(number, None) for number in self._came]
        self._engine.submit([*victims, *(self._spec(*one) for one in self._others.items())])
        self._done.wait()
        self._engine.stop()
        settled = [times[5:] for times in self._came.values()]
        return [later - earlier for times in settled for earlier, later in pairwise(times)]

    def _take(self, report: StepReport) -> None:
        now = time.perf_counter()
        ended = list(report.refused)
        for one in report.progress:
            if one.sequence_id in self._came:
                self._came[one.sequence_id].append(now)
            elif one.finish is not None:
                ended.append(one.sequence_id)
        if all(len(times) >= self._num_tokens for times in self._came.values()):
            self._done.set()
        for number in ended:
            self._next += 1
            self._others[self._next] = self._others.pop(number)
            self._engine.submit([self._spec(self._next, self._others[self._next])])

    def _spec(self, number: int, grammar: Grammar | None) -> SequenceSpec:
        prompt = pack_tokens(self._rng.choices(range(1000, 40_000), k=64))
        stopping = Stopping(self._num_tokens)
        sampling = Sampling(temperature=1.0, seed=number)
        return SequenceSpec(number, CacheScope(), prompt, sampling, stopping, grammar=grammar)


def report(outcomes: Sequence[Outcome], hostile: float | None) -> Report:
    """The table; the last line has all tokens together."""
    together = [seconds for one in outcomes for seconds in one.seconds]
    counts: Counter[str] = Counter()
    for one in outcomes:
        counts["invalid"] += one.invalid
        counts["failed"] += one.failed
    summary = {
        "mean_us": 1e6 * mean(together),
        "p99_us": 1e6 * _p(together, 0.99),
        "invalid": counts["invalid"] + counts["failed"],
    }
    if hostile is not None:
        summary["hostile_p99"] = hostile
    rows = [
        [
            one.name,
            f"{1e3 * one.compile_s:.1f}",
            f"{len(one.seconds):,}",
            f"{1e6 * mean(one.seconds):.0f}",
            f"{1e6 * _p(one.seconds, 0.5):.0f}",
            f"{1e6 * _p(one.seconds, 0.99):.0f}",
            f"{one.ended}",
            f"{one.invalid + one.failed}",
        ]
        for one in outcomes
    ]
    return Report(NAME, COLUMNS, rows, summary)


def _p(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
