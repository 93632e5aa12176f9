"""What a worker's task decides at its start: sizes, what runs the model, how pairs are written.

    kind_of(files, task)  ─▶  decoder: the head is swapped, all else as for a generation
                          └▶  encoder: whole prompts, one by one, no K/V and no cache

A reranker has to prove itself on a known pair: a model under the wrong task, or a pair in the
wrong template, gives numbers between 0 and 1 like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from worker.cache.off import NoCache
from worker.cache.pages import PagePool
from worker.config import ConfigError, WorkerConfig
from worker.dflash import Dflash, Mode
from worker.encoding import EncoderRunner
from worker.engine import StepRunner
from worker.intake import Intake
from worker.memory import PagePlan
from worker.model.encoder import EncoderOptions, encoder_shape, load_encoder
from worker.model.errors import UnsupportedModel
from worker.model.heads import VOCABULARY, Bare, Classifier, Head, YesNo
from worker.model.interface import ModelShape
from worker.model.kind import Kind, kind_of
from worker.model.pooling import pooling_of
from worker.prepared import specs
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sizes import DTYPES, Sizes, check_devices, decide, default_dtype
from worker.submission import PairInput, Submission, Want
from worker.text.pairs import Pairs, TokenizerPairs, YesNoPairs
from worker.text.tokenizer import Tokenizer
from worker.wants import Purpose

QUERY = "What is the capital of France?"
RELEVANT = "Paris is the capital and largest city of France."
IRRELEVANT = "Bananas are rich in potassium and grow in warm climates."


@dataclass(frozen=True, slots=True)
class Trade:
    """A model under its task. head: of a decoder. separator: of an encoder that scores pairs."""

    kind: Kind
    purpose: Purpose
    head: Head = VOCABULARY
    separator: int | None = None


def trade_of(config: WorkerConfig, folder: Path, tokenizer: Tokenizer) -> Trade:
    """Returns what the model is for. Raises ConfigError, ModelUnavailable, UnsupportedModel."""
    kind = kind_of(folder, config.task)
    if kind.task == "generate":
        return Trade(kind, Purpose(dflash=dflash_of(config)))
    if config.dflash != "off":
        raise ConfigError(
            f"dflash is {config.dflash!r}: task is {kind.task!r}, and only models that generate "
            "decode; only off will do."
        )
    if config.tensor_parallel > 1:
        raise ConfigError(
            f"tensor_parallel is {config.tensor_parallel}: task is {kind.task!r}, and only models "
            "that generate are split; only 1 will do."
        )
    if kind.encodes and config.member == "lowered":
        raise ConfigError("member is 'lowered': an encoder runs on transformers' own modules.")
    if kind.task == "embed":
        return Trade(kind, Purpose("embed"), _bare(folder, kind))
    pairs = _pairs(config, kind, tokenizer)
    if kind.encodes:
        separator = tokenizer.pair_separator
        return Trade(kind, Purpose("rerank", pairs), separator=separator)
    head = Classifier() if kind.labels else _yes_no(pairs)
    return Trade(kind, Purpose("rerank", pairs), head)


def dflash_of(config: WorkerConfig) -> Dflash:
    """Who may decode over a part of its context."""
    return Dflash(
        Mode(config.dflash),
        config.dflash_budget,
        config.dflash_share,
        config.dflash_min_context,
        config.dflash_min_batch,
    )


def sizes_for(config: WorkerConfig, folder: Path, kind: Kind) -> Sizes:
    """Returns the sizes that follow. Raises ModelUnavailable, UnsupportedModel."""
    if not kind.encodes:
        return decide(config, folder)
    check_devices(config)
    found = encoder_shape(folder)
    longest = min(config.max_model_len or found.trained, found.positions)
    # Whatever runs, the longest text fits a step beside as much of others.
    steps = max(config.max_step_tokens or 0, 2 * longest)
    num_pages = -(-steps // config.page_size) + config.max_running_sequences
    shape = ModelShape(found.architecture, found.vocab_size, 0, 0, 0, 0, found.positions)
    dtype = DTYPES[config.dtype] if config.dtype != "auto" else default_dtype(config.device)
    return Sizes(shape, PagePlan(num_pages, config.page_size, 0), dtype, longest, steps)


def encoder_runner(config: WorkerConfig, folder: Path, sizes: Sizes, trade: Trade) -> StepRunner:
    """Returns what runs an encoder's plans. Raises UnsupportedModel."""
    options = EncoderOptions(sizes.dtype, config.device, trade.separator)
    return EncoderRunner(load_encoder(folder, trade.kind, options))


def check(intake: Intake, runner: StepRunner, limits: SchedulerLimits, page_size: int) -> None:
    """Raises ConfigError unless a relevant document beats an irrelevant one.

    Runs in pages of its own bookkeeping, before anybody else's are in use.
    """
    relevant, irrelevant = (
        _score(intake, runner, limits, page_size, document) for document in (RELEVANT, IRRELEVANT)
    )
    if not relevant > irrelevant:
        raise ConfigError(
            f"task is 'rerank': for the query {QUERY!r} the model gives {RELEVANT!r} "
            f"{relevant:.4f} and {IRRELEVANT!r} {irrelevant:.4f}. It is no reranker, or "
            "pair_template is another one's; check_task: false serves it anyhow."
        )


def _score(
    intake: Intake, runner: StepRunner, limits: SchedulerLimits, page_size: int, document: str
) -> float:
    submission = Submission(0, PairInput(QUERY, document), want=Want.VALUES)
    [spec] = specs(intake.prepare(submission), submission, [0], iter([0]))
    num_pages = -(-len(spec.prompt) // 4 // page_size) + 1
    scheduler = Scheduler(NoCache(PagePool(num_pages, page_size)), limits)
    scheduler.add(spec)
    while (plan := scheduler.plan()) is not None:
        result = runner.run(plan, _go_on)
        scheduler.apply(result)
        for valued in scheduler.valued(result):
            return valued.values[0]
    raise AssertionError("a pair has a score")


def _go_on() -> None:
    """Nobody takes the known pair back."""


def _pairs(config: WorkerConfig, kind: Kind, tokenizer: Tokenizer) -> Pairs:
    """How pairs are written. Raises ConfigError, ModelUnavailable."""
    wished = config.pair_template
    if kind.encodes and wished == "qwen3":
        raise ConfigError(
            "pair_template is 'qwen3': an encoder has no chat turns; it takes auto or tokenizer."
        )
    if not kind.encodes and not kind.labels and wished == "tokenizer":
        raise ConfigError(
            "pair_template is 'tokenizer': a model that answers yes or no has to be asked; it "
            "takes auto or qwen3."
        )
    is_asked = wished == "qwen3" or not (kind.encodes or kind.labels)
    return YesNoPairs(tokenizer) if is_asked else TokenizerPairs(tokenizer)


def _yes_no(pairs: Pairs) -> YesNo:
    assert isinstance(pairs, YesNoPairs)
    return YesNo(pairs.no, pairs.yes)


def _bare(folder: Path, kind: Kind) -> Head:
    """The head of a model that embeds. Raises UnsupportedModel for a decoder that pools."""
    if kind.encodes:
        return VOCABULARY  # an encoder's pooling is its own
    pooling = pooling_of(folder, "last")
    if pooling.mode != "last":
        raise UnsupportedModel(
            f"task is 'embed': {folder.name} is a decoder with {pooling.mode} pooling; the last "
            "token's is supported."
        )
    return Bare(pooling.normalises)
