"""A model of random weights through the worker's runner, its decode with and without graphs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.utils import logging

from kernels.interface import AttentionBackend, can_capture
from loadtest.gpu_check.batches import num_pages, tables_of
from loadtest.gpu_check.findings import Figure, Row
from loadtest.gpu_check.scale import Ask, Scale
from worker.model.formats import Formats
from worker.model.graphs import Capture, CudaCapture, GraphedModel, GraphRoom, Recording
from worker.model.loading import LoadOptions, load
from worker.model.lowered import LoweredModel
from worker.request import Sampling
from worker.runner import Runner
from worker.sequence import pack_tokens
from worker.step import PlanRow, SampleRow, StepPlan

GREEDY = Sampling(temperature=0)
WARM_STEPS = 3
PROMPT, ANSWER, SPEAKERS = 20, 12, 3


class CallAgain:
    """A capture for machines without a GPU: the step is called again, so nothing is saved."""

    def record(self, step: Callable[[], torch.Tensor]) -> Recording:
        """Runs the step and returns what runs it anew."""
        output = step()

        def replay() -> None:
            output.copy_(step())

        return Recording(replay, output)


@dataclass(frozen=True, slots=True)
class Driver:
    """A runner and what it is asked."""

    runner: Runner
    scale: Scale

    def prefill_tokens_per_s(self) -> float:
        """Whole prompts, all in one step."""
        serving, length = self.scale.serving, self.scale.serving.prompt_tokens
        tables = tables_of(serving.prefill_prompts, length, 0, self.scale.page_size)
        rows = [
            PlanRow(s, pack_tokens([5 + s] * length), 0, table, _asked(length))
            for s, table in enumerate(tables)
        ]
        for _ in range(2):  # the second one counts
            began = time.perf_counter()
            self.runner.run(StepPlan(rows), _nothing)
            seconds = time.perf_counter() - began
        return serving.prefill_prompts * length / seconds

    def decode_tokens_per_s(self, ask: Ask) -> float:
        """A batch behind contexts that were never computed: their pages hold what they hold."""
        tables, steps = _tables(self.scale, ask), self.scale.serving.steps
        began = time.perf_counter()
        for step in range(WARM_STEPS + steps):
            if step == WARM_STEPS:
                began = time.perf_counter()
            at, token = ask.context + step, pack_tokens([7])
            rows = [
                PlanRow(s, token, at, table, _asked(at + 1), budget=ask.budget)
                for s, table in enumerate(tables)
            ]
            self.runner.run(StepPlan(rows), _nothing)
        return ask.batch * steps / (time.perf_counter() - began)

    def answers(self) -> list[list[int]]:
        """Greedy answers to prompts that are really computed."""
        tables = tables_of(SPEAKERS, PROMPT + ANSWER, 0, self.scale.page_size)
        given = [[11 + 13 * s + place for place in range(PROMPT)] for s in range(SPEAKERS)]
        made: list[list[int]] = [[] for _ in range(SPEAKERS)]
        for at in (0, *range(PROMPT, PROMPT + ANSWER - 1)):
            end = at + len(given[0])
            rows = [
                PlanRow(s, pack_tokens(tokens), at, tables[s], _asked(end))
                for s, tokens in enumerate(given)
            ]
            given = [[one.token] for one in self.runner.run(StepPlan(rows), _nothing).sampled]
            for answer, (token,) in zip(made, given, strict=True):
                answer.append(token)
        return made


def measure(scale: Scale, member: str) -> list[Row]:
    """Returns prefill and decode; decode also by graphs, where the member can be captured."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="pando-gpu-check-") as name:
        save_model(scale, Path(name))
        for sketched in (False, True):
            asks = [ask for ask in scale.serving.asks if bool(ask.budget) == sketched]
            try:
                model = _loaded(scale, member, Path(name), sketched)
            except ValueError as error:
                rows.append(Row(f"{member}, {asks[0].what}", {"refused": str(error)}))
            else:
                rows += _measured(scale, model, asks)
    return rows


def _measured(scale: Scale, model: LoweredModel, asks: list[Ask]) -> list[Row]:
    backend, device = model.backend, torch.device(scale.device)
    driver, member = Driver(Runner(model, device), scale), backend.name
    rows = [Row(f"{member}, prefill", {"tokens_s": driver.prefill_tokens_per_s()})]
    plain = {ask: driver.decode_tokens_per_s(ask) for ask in asks}
    answers = driver.answers()
    if not _capturable(backend, scale):
        return rows + [Row(f"{member}, {ask.what}", {"tokens_s": plain[ask]}) for ask in asks]
    model.backend = backend  # as it was before the runner took it
    began = time.perf_counter()
    graphed = GraphedModel(model, _room(scale, backend), _capture(scale))
    figures: dict[str, Figure] = {"seconds": time.perf_counter() - began}
    driver = Driver(Runner(graphed, device), scale)
    for ask in asks:
        rate = driver.decode_tokens_per_s(ask)
        told = {"tokens_s": plain[ask], "graphs_tokens_s": rate, "speedup": rate / plain[ask]}
        rows.append(Row(f"{member}, {ask.what}", told))
    same = sum(a == b for a, b in zip(driver.answers(), answers, strict=True))
    figures |= {"same_answers": same, "of": len(answers)}
    # Products may choose otherwise for a padded batch: one near-tie is no fault, all of them are.
    return [*rows, Row(f"{member}, graphs captured", figures, wrong=not same)]


def save_model(scale: Scale, folder: Path) -> None:
    """Writes a model of random weights."""
    logging.disable_progress_bar()
    config = LlamaConfig(**scale.serving.config, eos_token_id=None, bos_token_id=None)
    torch.manual_seed(0)
    with torch.device(scale.device):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=scale.dtype)
    model.save_pretrained(folder)


def _loaded(scale: Scale, member: str, folder: Path, sketched: bool) -> LoweredModel:
    """The model with pages for the largest ask, and one for graphs."""
    pages = max(num_pages(_tables(scale, ask)) for ask in scale.serving.asks)
    options = LoadOptions(
        num_pages=pages + 1,
        page_size=scale.page_size,
        member="lowered",
        backend=member,
        dtype=scale.dtype,
        device=scale.device,
        formats=Formats(sketched_keys=sketched),
    )
    model = load(folder, options)
    assert isinstance(model, LoweredModel)
    return model


def _capturable(backend: AttentionBackend, scale: Scale) -> bool:
    """On a CPU everything can be called again."""
    if scale.device == "cpu" and not can_capture(backend):
        backend.capturable = True  # type: ignore[attr-defined]
    return can_capture(backend)


def _capture(scale: Scale) -> Capture:
    return CallAgain() if scale.device == "cpu" else CudaCapture()


def _room(scale: Scale, backend: AttentionBackend) -> GraphRoom:
    sizes = {SPEAKERS + 1, *(ask.batch for ask in scale.serving.asks)}
    longest = max(len(_tables(scale, ask)[0]) for ask in scale.serving.asks)
    scratch = backend.shape.num_pages - 1
    return GraphRoom(tuple(sorted(sizes)), scratch, longest, torch.device(scale.device))


def _tables(scale: Scale, ask: Ask) -> list[list[int]]:
    length = ask.context + WARM_STEPS + scale.serving.steps
    return tables_of(ask.batch, length, ask.shared, scale.page_size)


def _asked(position: int) -> SampleRow:
    return SampleRow(GREEDY, position)


def _nothing() -> None:
    """Nobody interrupts."""
